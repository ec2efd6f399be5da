"""Every mistake in a user's file has its message: what is wrong, and the line to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets_support import COMPLETE, DATASET, HEAD, MODEL, refused

# The mistake, the file that makes it, and what the message has to hold.
MISTAKES = {
    "trains on import": (
        COMPLETE + "m = model(); o = torch.optim.SGD(m.parameters())\n"
        "while True: m(torch.randn(1, 4)).sum().backward(); o.step()\n",
        ["model.py trains while being imported (an optimizer stepped)", 'if __name__ == "__main__":'],
    ),
    "exits on import": (
        "import argparse\np = argparse.ArgumentParser()\np.error = lambda m: exit(2)\np.add_argument('data')\n"
        "p.parse_args()\n" + COMPLETE,
        ["model.py ended the process while being imported (SystemExit: 2)"],
    ),
    "no model": (HEAD + "def get_model(): return nn.Linear(4, 2)\n", ["no model. Did you mean get_model → model?"]),
    "misspelt model": (HEAD + "def modle(): return nn.Linear(4, 2)\n", ["no model. Did you mean modle → model?"]),
    "only a class": (
        HEAD + "class Net(nn.Module): pass\n" + DATASET,
        ["Found nn.Module class Net: add  def model(): return Net()"],
    ),
    "nothing at all": ("x = 1\n", ["model.py has no model. autotune looks for that name."]),
    "model returns None": (
        HEAD + "def model(): nn.Linear(4, 2)\n" + DATASET,
        ["model() returned None (did you forget return?)"],
    ),
    "model returns something else": (
        HEAD + "def model(): return [nn.Linear(4, 2)]\n" + DATASET,
        ["model() returned a list: return an nn.Module."],
    ),
    "required argument": (
        HEAD + "def model(hidden): return nn.Linear(4, hidden)\n" + DATASET,
        [
            'model() asks for "hidden"; autotune can pass only batch_size, device, knobs, num_workers. '
            'Give "hidden" a default.'
        ],
    ),
    "frozen model": (
        HEAD + "def model(): return nn.Linear(4, 2).requires_grad_(False)\n" + DATASET,
        ["without a trainable parameter"],
    ),
    "lazy model": (
        HEAD + "def model(): return nn.LazyLinear(2)\n" + DATASET,
        ["whose weight has no shape yet", "Run one batch through it in model()."],
    ),
    "no data": (
        MODEL,
        ["model.py has a model but no data: add dataset() (tunes workers too) or batch(batch_size) (synthetic)"],
    ),
    "data under another name": (
        MODEL + "def get_dataset(): return [1]\n",
        ["no data. Did you mean get_dataset → dataset()?"],
    ),
    "two kinds of data": (
        COMPLETE + "def batch(batch_size): return torch.randn(batch_size, 4)\n",
        ["model.py has dataset and batch", "exactly one of"],
    ),
    "dataset returns a DataLoader": (
        MODEL + "def dataset(): return torch.utils.data.DataLoader([1, 2])\n",
        ["return its dataset (autotune sets batch size and workers)", "dataloader(batch_size, num_workers)."],
    ),
    "dataset is empty": (MODEL + "dataset = []\n", ["dataset() has 0 samples"]),
    "dataset returns its splits": (
        MODEL + "def dataset(): return {'train': [1], 'test': [2]}\n",
        ["dataset() returned a dict of train, test: return one of them."],
    ),
    "dataset returns bare tensors": (
        MODEL + "def dataset(): return torch.randn(9, 4), torch.zeros(9)\n",
        ["return torch.utils.data.TensorDataset(*tensors)"],
    ),
    "dataset is a generator": (
        MODEL + "def dataset():\n    for i in range(9): yield torch.randn(4), 1\n",
        ["dataset() returned a generator, which ends after one epoch"],
    ),
    "dataset has no length": (
        MODEL + "class D:\n    def __getitem__(self, i): return 1\ndef dataset(): return D()\n",
        ["dataset() returned a D, which is no dataset"],
    ),
    "dataloader returns no iterable": (
        MODEL + "def dataloader(batch_size): return 3\n",
        ["dataloader() returned a int: return an iterable of batches."],
    ),
    "dict batch without labels": (
        HEAD + "class Net(nn.Linear):\n"
        "    def forward(self, input_ids, attention_mask): return {'logits': super().forward(input_ids)}\n"
        "def model(): return Net(4, 2)\n"
        "dataset = [{'input_ids': torch.randn(4), 'attention_mask': torch.ones(4)}] * 9\n",
        ["the model returned no .loss for keys input_ids, attention_mask: add labels, or write loss(model, batch)."],
    ),
    "batch of three": (
        MODEL + "dataset = [(torch.randn(4), 1, 2)] * 9\n",
        [
            "A batch is a list of 3 items, and without loss() autotune expects (inputs, target)",
            "Write loss(model, batch).",
        ],
    ),
    "loss not scalar": (
        COMPLETE + "def loss(model, batch): return model(torch.randn(2, 4))\n",
        ['loss returned Tensor(2, 2): return one scalar. A criterion probably has reduction="none": return the'],
    ),
    "loss is a number": (
        COMPLETE + "def loss(model, batch): return 1.5\n",
        ["loss returned float", "return one scalar tensor."],
    ),
    "loss returns nothing": (COMPLETE + "def loss(model, batch): ...\n", ["did you forget return?"]),
    "loss without gradient": (
        COMPLETE + "def loss(model, batch): return model(batch[0]).sum().detach()\n",
        ["the loss has no gradient (no trainable parameter, or no_grad / detach)."],
    ),
    "loss is a module": (
        COMPLETE + "loss = nn.CrossEntropyLoss()\n",
        [
            "loss is a CrossEntropyLoss object, and autotune calls loss(model, batch)",
            "Call it criterion, and write  def loss(model, batch): x, y = batch; return criterion(model(x), y)",
        ],
    ),
    "loss takes output and target": (
        COMPLETE + "def loss(output, target): ...\n",
        [
            'loss() asks for "output"; autotune can pass only batch, batch_size, device, knobs, model, num_workers. '
            "It is called loss(model, batch)",
            "unpack inside: x, y = batch.",
        ],
    ),
    "loss takes inputs and targets beside the model": (
        COMPLETE + "def loss(model, x, y): ...\n",
        ['loss() asks for "x"', "unpack inside: x, y = batch."],
    ),
    "several losses in a dict": (
        COMPLETE + "def loss(model, batch): return {'a': model(batch[0]).sum(), 'b': model(batch[0]).mean()}\n",
        ["loss returned a dict of 2.", "Return one scalar tensor: sum(losses.values()) of several losses"],
    ),
    "a loss and the outputs": (
        COMPLETE + "def loss(model, batch):\n    out = model(batch[0])\n    return out.sum(), out\n",
        ["loss returned a tuple of 2.", "or the loss alone."],
    ),
    "a model that does not take the keys of a batch": (
        MODEL + "dataset = [{'input': torch.randn(4), 'click': 1, 'buy': 0}] * 99\n",
        [
            "Linear.forward does not take what a batch holds",
            "'click'",
            "keys input, click, buy",
            "write loss(model, batch)",
        ],
    ),
    "a model that takes more than the inputs": (
        HEAD + "class Net(nn.Linear):\n    def forward(self, x, mask): return super().forward(x)\n"
        "def model(): return Net(4, 2)\n" + DATASET,
        [
            "Net.forward does not take what a batch holds: missing a required argument: 'mask'",
            "write loss(model, batch)",
        ],
    ),
    "a criterion": (
        COMPLETE + "criterion = nn.CrossEntropyLoss(label_smoothing=0.1)\n",
        [
            "model.py has criterion and no loss.",
            "a loss inferred instead could be another than yours.",
            "Write  def loss(model, batch): x, y = batch; return criterion(model(x), y)",
        ],
    ),
    "a criterion with tensors": (
        COMPLETE + "loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1., 5.]))\n",
        ["return loss_fn.to(y.device)(model(x), y)"],
    ),
    "a criterion that is a function": (
        COMPLETE + "loss_func = nn.functional.cross_entropy\n",
        ["Write  def loss(model, batch): x, y = batch; return loss_func(model(x), y)"],
    ),
    "a loss by another name": (
        COMPLETE + "def compute_loss(model, batch): ...\n",
        ["model.py has compute_loss and no loss.", "Write  loss = compute_loss"],
    ),
    "a collate_fn": (
        COMPLETE + "def collate_fn(samples): return torch.utils.data.default_collate(samples)\n",
        ["model.py has collate_fn and no collate.", "Write  collate = collate_fn"],
    ),
    "a sampler of batches": (
        COMPLETE + "def sampler(dataset):\n"
        "    return torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(dataset), 4, False)\n",
        ["sampler() returned a BatchSampler", "Return the sampler of single samples"],
    ),
    "two models": (
        HEAD + "def model(): return nn.Linear(4, 4), nn.Linear(4, 1)\n" + DATASET,
        [
            "model() returned a tuple of 2. autotune trains one module. Parts of it may have several losses and "
            "optimizers: return nn.ModuleDict({...}), and write step(model, batch, optimizers)",
        ],
    ),
    "two models by name": (
        HEAD + "def model(): return {'g': nn.Linear(4, 4), 'd': nn.Linear(4, 1)}\n" + DATASET,
        ["model() returned a dict of 2. autotune trains one module."],
    ),
    "an optimizer and its schedule": (
        COMPLETE + "def optimizer(params):\n    o = torch.optim.SGD(params, lr=1.)\n"
        "    return [o], [torch.optim.lr_scheduler.StepLR(o, 9)]\n",
        [
            "optimizer() returned a tuple with list in it.",
            "a schedule has a function of its own, scheduler(optimizer).",
        ],
    ),
    "ragged samples": (
        MODEL + "dataset = [(torch.randn(1 + i % 2, 4), 1) for i in range(9)]\ndef sampler(dataset): return range(9)\n",
        ["samples 0 and 1 have shapes (1, 4) and (2, 4): write collate(samples), or pad."],
    ),
    "samples of an unknown type": (
        MODEL + "dataset = [(object(), 1)] * 9\n",
        ["samples cannot be joined into a batch", "write collate(samples)."],
    ),
    "float64 from NumPy": (
        MODEL + "dataset = TensorDataset(torch.randn(99, 4).double(), torch.zeros(99).long())\n",
        ["got Double and Float. The batch is float64, probably because NumPy made it", 'x.astype("float32")'],
    ),
    "float64 labels": (
        HEAD + "def model(): return nn.Linear(4, 1)\n"
        "dataset = TensorDataset(torch.randn(99, 4), torch.rand(99, 1).double())\n"
        "def loss(model, batch): return nn.functional.binary_cross_entropy(model(batch[0]).sigmoid(), batch[1])\n",
        ["Found dtype Double but expected Float. The batch is float64"],
    ),
    "samples on the GPU": (  # what a CUDA build says there; a CPU build never pins
        MODEL + "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 99\n"
        "    def __getitem__(self, i):\n"
        "        raise RuntimeError(\"cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned\")\n"
        "dataset = Data()\n",
        [
            "only dense CPU tensors can be pinned. The samples are probably on the GPU already",
            "batch(batch_size, device)",
        ],
    ),
    "float64 images": (
        HEAD + "def model(): return nn.Conv1d(4, 2, 1)\n"
        "dataset = TensorDataset(torch.randn(99, 4, 3).double(), torch.zeros(99, 3).long())\n",
        ["Input type (double) and bias type (float)", "The batch is float64"],
    ),
    "labels beyond the model's classes": (
        MODEL + "dataset = TensorDataset(torch.randn(99, 4), torch.full((99,), 7))\n",
        ["the first training step, on a batch of (float32 (32, 4), int64 (32,)): IndexError: Target 7"],
    ),
    "a target without the output's last dimension": (
        HEAD + "def model(): return nn.Linear(4, 1)\ndataset = TensorDataset(torch.randn(99, 4), torch.randn(99))\n",
        ["output (32, 1) and target (32) of float32: make dataset() return targets of the output's shape, or write"],
    ),
    "a loader with a batch size of its own": (
        MODEL + "def dataloader(): return torch.utils.data.DataLoader(TensorDataset(torch.randn(99, 4)), 24)\n",
        ["dataloader() was asked for batches of 32 samples and gave (float32 (24, 4)). It probably"],
    ),
    "a synthetic batch of one size": (
        MODEL + "def batch(): return torch.randn(24, 4), torch.ones(24).long()\nbaseline = {'batch_size': 8}\n",
        ["batch() was asked for batches of 8 samples and gave (float32 (24, 4), int64 (24,))."],
    ),
    "ambiguous loss": (
        HEAD + "def model(): return nn.Conv1d(4, 6, 1)\n"
        "dataset = TensorDataset(torch.randn(9, 4, 6), torch.randint(6, (9, 6)))\n"
        "baseline = {'batch_size': 2}\n",
        ["cross_entropy fits two ways for output (2, 6, 6) and target (2, 6): write loss(model, batch)."],
    ),
    "dataset smaller than the global batch": (
        COMPLETE + "global_batch_size = 1024\n",
        ["dataset has 100 samples, the held global batch is 1024", "Lower --global-batch"],
    ),
    "dataset smaller than the batch": (
        COMPLETE + "baseline = {'batch_size': 128}\n",
        ["dataset has 100 samples, one batch needs 128"],
    ),
    "optimizer returns something else": (
        COMPLETE + "def optimizer(params): return list(params)\n",
        ["optimizer() returned a list with Parameter in it.", "Return one torch.optim.Optimizer, such as"],
    ),
    "optimizer is an object": (
        COMPLETE + "optimizer = torch.optim.SGD(model().parameters())\n",
        ["optimizer is a SGD, and autotune calls optimizer(params)"],
    ),
    "unknown knob": (COMPLETE + "baseline = {'batchsize': 8}\n", ["there is no knob 'batchsize'", "batch_size?"]),
    "impossible value": (COMPLETE + "space = {'amp_dtype': ['bf16']}\n", ['space["amp_dtype"]:', "got 'bf16'"]),
    "a number in quotes": (
        COMPLETE + "baseline = {'batch_size': '64'}\n",
        [
            "baseline[\"batch_size\"]: batch_size must be a whole number of at least 1, got '64'. A str was given",
            "such as baseline = {'batch_size': 32}",
        ],
    ),
    "values in a text": (
        COMPLETE + "space = {'num_workers': '0,2'}\n",
        ["must be a whole number of at least 0, got '0,2'. A str was given", "such as space = {'num_workers': [0]}"],
    ),
    "a number for a switch": (
        COMPLETE + "baseline = {'channels_last': 1}\n",
        ["must be true or false, got 1. A int was given", "such as baseline = {'channels_last': False}"],
    ),
    "empty range": (COMPLETE + "space = {'batch_size': (64, 8)}\n", ["the range of batch_size from 64 to 8 is empty"]),
    "baseline is a list": (COMPLETE + "baseline = [8]\n", ["baseline is a list"]),
    "baseline is an int": (COMPLETE + "baseline = 8\n", ["baseline is an int. It holds values"]),
    "global batch of nothing": (COMPLETE + "global_batch_size = 0\n", ["global_batch_size is 0"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_has_its_message(tmp_path: Path, mistake: str) -> None:
    text, expected = MISTAKES[mistake]

    error = refused(tmp_path, text)

    assert [part for part in expected if part not in str(error)] == [], str(error)


def test_a_file_that_trains_on_import_is_told_the_line(tmp_path: Path) -> None:
    text = (
        COMPLETE + "m = model()\no = torch.optim.SGD(m.parameters())\nm(torch.randn(1, 4)).sum().backward()\no.step()\n"
    )

    error = refused(tmp_path, text)

    assert "line 9, in <module>" in error.traceback


def test_a_message_that_says_it_all_is_not_said_twice(tmp_path: Path) -> None:
    error = refused(tmp_path, "import sys\nsys.exit('no data')\n" + COMPLETE)

    assert "line 2" in error.traceback
    assert "ended the process" in str(error)
    assert "ended the process" not in error.traceback
