"""The model of `conv.py` in a script of its own, whose ranks torchrun starts: one on each GPU, or on the CPU."""

import argparse
import os
from itertools import count

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from benchmarks.targets.ranks.conv import batch, model

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
options = parser.parse_args()

is_cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_cuda else torch.device("cpu")
if is_cuda:
    torch.cuda.set_device(device)
distributed.init_process_group("nccl" if is_cuda else "gloo")
data = TensorDataset(*batch(4096))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler, drop_last=True)
net = DistributedDataParallel(model().to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in count():
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
