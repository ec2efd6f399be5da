"""The network and the loop of pytorch/examples/mnist, logging each step, on scikit-learn's digits."""

import torch
from lightning.pytorch.demos.boring_classes import RandomDataset  # noqa: F401  # as people import more than they use
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812

baseline = {"batch_size": 64}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


class Digits(torch.utils.data.Dataset):
    def __init__(self):
        self.digits = load_digits()

    def __len__(self):
        return len(self.digits.images)

    def __getitem__(self, index):
        image = torch.tensor(self.digits.images[index], dtype=torch.float32)[None, None]
        image = F.interpolate(image, (28, 28), mode="bilinear")[0]
        return (image / 16 - 0.1307) / 0.3081, int(self.digits.target[index])


def model():
    return Net()


def dataset():
    return Digits()


def optimizer(params):
    return torch.optim.Adadelta(params, lr=1.0)


def loss(model, batch):
    data, target = batch
    loss = F.nll_loss(model(data), target)
    print(f"Train [{len(data)}]\tLoss: {loss.item():.6f}")
    return loss
