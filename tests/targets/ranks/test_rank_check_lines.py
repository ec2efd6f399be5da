"""What matters to several ranks is said when a target is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from autotune.targets.ranks.rank_check_lines import batch_statistics
from tests.ranks import on_ranks
from tests.targets_support import COMPLETE, inspect, look

NORMED = """
import torch
from torch import nn
def model(): return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
def dataset(): return torch.utils.data.TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))
find_unused_parameters = True
"""


def test_other_ways_to_train_on_several_devices_are_recognised(tmp_path: Path) -> None:
    text = COMPLETE + (
        "def trained():\n    import horovod.torch as hvd\n    from apex.parallel import DistributedDataParallel\n"
        "    from fairscale.nn import FullyShardedDataParallel\n    return hvd, 'ddp_spawn'\n"
        "plain = model\ndef model(): return nn.DataParallel(plain())\n"
    )

    found = [one for one in inspect(tmp_path, text).check_lines if one.name == "ranks"]

    assert all(one.needs_attention for one in found)
    for word in ("DataParallel: one process feeds", "Horovod", "Apex", "FairScale", "ddp_spawn"):
        assert [one for one in found if word in one.text], word
    assert len(found) == 5
    assert all("(model.py:" in one.text for one in found)


@pytest.mark.slow
def test_they_are_recognised_in_a_script_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch import nn\ntry: import horovod.torch\nexcept ImportError: pass\n"
        "net = nn.DataParallel(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for batch in torch.utils.data.DataLoader(torch.randn(400, 4), 8):\n"
        "    net(batch).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )

    found = [one for one in look(f"-- python {script}").check_lines if one.name == "ranks"]

    assert [one.text.rpartition(" ")[2] for one in found] == ["(train.py:3)", "(train.py:5)"]
    assert "wrap the model in DistributedDataParallel, and start the ranks by torchrun" in found[1].text


def test_a_plain_target_of_one_rank_is_told_nothing_of_ranks(tmp_path: Path) -> None:
    found = inspect(tmp_path, COMPLETE)

    assert not [one for one in found.check_lines if one.name in ("ranks", "BatchNorm")]
    assert not found.finds_unused_parameters


def test_batch_norm_takes_statistics_of_a_batch_unless_it_is_frozen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.SyncBatchNorm(4), nn.BatchNorm2d(4, track_running_stats=False))

    training = [one.text[:20] for one in batch_statistics(model.modules(), 2)]
    frozen = [one.text[:20] for one in batch_statistics(model.eval().modules(), 2)]

    assert training == ["1 layer of SyncBatch", "2 layers with the st"]
    assert frozen == ["1 layer with the sta"]


def test_an_export_can_tell_that_ranks_looked_for_unused_parameters(tmp_path: Path) -> None:
    assert inspect(tmp_path, NORMED).finds_unused_parameters


@pytest.mark.slow
def test_batch_norm_and_a_needless_search_for_unused_parameters_are_told(tmp_path: Path) -> None:
    code = "import os\nos.environ['NCCL_ALGO'] = 'Ring'\nfacts = inspect(HERE, TARGET)\n"
    code += "tell(found=[(one.name, one.text) for one in facts.check_lines])\n"
    code += "tell(exposed=facts.exposed_communication)"

    first, second = on_ranks(tmp_path, f"TARGET = {NORMED!r}\n{code}")

    texts = [text for name, text in first["found"] if name in ("ranks", "BatchNorm")]
    assert texts[0].startswith("2 ranks train one model")
    assert texts[1].startswith("find_unused_parameters looks through the graph in every step")
    assert texts[1].endswith("(model.py:6)")
    assert texts[2].startswith("1 layer with the statistics of one rank's micro-batch, not of all 2")
    (nccl,) = [text for name, text in first["found"] if name == "NCCL"]
    assert nccl.startswith("NCCL_ALGO set outside: not tuned")
    assert all(0 <= one["exposed"] <= 1 for one in (first, second))
