"""Real searches that are asked for what does nothing here, and of code that sets its own arithmetic."""

import json

import pytest

from tests.commandline import TARGET, TWO_ROUNDS, assert_one_clear_error, briefly, run_here

ASKED = "sdpa=flash,checkpointing=every_second,pin_memory=true,prefetch=4,tf32=true,channels_last=true"
SAID = (
    "sdpa=flash does nothing here: no step calls scaled_dot_product_attention",
    "checkpointing=every_second does nothing here: the model has no repeated blocks",
    "pin_memory=true does nothing here: only CUDA copies faster from such memory",
    "prefetch=4 does nothing here: there are no loader workers",
    "tf32=true does nothing here: only CUDA devices of capability 8.0 and above have it",
    "channels_last=true does nothing here: the model has no two-dimensional convolutions",
)
LEFT_ALONE = {
    "sdpa_backend": None, "activation_checkpointing": False, "pin_memory": None, "prefetch_factor": None, "tf32": False,
    "channels_last": False,
}  # fmt: skip
OWN_KERNEL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.backends.cuda.enable_cudnn_sdp(False)

class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 2)
    def forward(self, batch):
        return self.last(self.own(batch, batch, batch, need_weights=False)[0].mean(1))

def model(): return Attending()
def dataset(): return TensorDataset(torch.randn(512, 4, 8), torch.randint(2, (512,)))
baseline = {"batch_size": 64}
space = {"batch_size": [32, 64], "amp_dtype": [None], "num_workers": [0], "omp_wait_policy": [None],
         "compile_mode": [None], "num_threads": [None], "fused_optimizer": [None]}
"""


def _search(folder, target, *words):
    (folder / "model.py").write_text(target)
    with briefly(TWO_ROUNDS):
        ended = run_here(folder, "search", "model.py", "-t", "5m", "--probes", "1", "--json", *words)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


@pytest.mark.usefixtures("forking_launcher")
def test_what_is_fixed_and_does_nothing_is_said_before_the_first_probe_and_is_not_in_the_answer(tmp_path):
    answer, said = _search(tmp_path, TARGET, "--fix", ASKED)

    opening = said.partition("\n\n")[0] if "\n\n" in said else said
    assert [line for line in SAID if line not in opening] == []
    assert {name: answer["params"][name] for name in LEFT_ALONE} == LEFT_ALONE


@pytest.mark.usefixtures("forking_launcher")
def test_check_says_the_same_of_space_and_baseline_in_the_file(tmp_path):
    written = 'space |= {"sdpa_backend": ["flash", None]}\nbaseline |= {"prefetch_factor": 4, "pin_memory": True}\n'
    (tmp_path / "model.py").write_text(TARGET + written)

    said = " ".join(run_here(tmp_path, "check", "model.py").stdout.split())

    assert SAID[0] in said
    assert "prefetch=4 in the baseline does nothing here: there are no loader workers" in said
    assert "pin_memory=true in the baseline does nothing here: only CUDA copies faster" in said


@pytest.mark.usefixtures("forking_launcher")
def test_an_update_that_the_optimizer_does_not_have_is_one_error_before_the_first_probe(tmp_path):
    optimizer = "def optimizer(parameters): return torch.optim.Rprop(parameters)\n"
    (tmp_path / "model.py").write_text(TARGET + optimizer)

    ended = run_here(tmp_path, "search", "model.py", "--fix", "fused_optimizer=fused")

    message = assert_one_clear_error(ended)
    assert message.startswith("fused_optimizer=fused is not possible here: Rprop has no such update in torch")
    assert not list(tmp_path.rglob("probes"))


@pytest.mark.usefixtures("forking_launcher")
def test_the_kernel_that_the_code_leaves_enabled_is_its_own_arithmetic_and_is_not_called_full_precision(tmp_path):
    answer, said = _search(tmp_path, OWN_KERNEL, "--fix", "sdpa=flash")

    assert answer["baseline"]["sdpa_backend"] == answer["params"]["sdpa_backend"] == "math"
    assert answer["stability"]["text"].startswith("your code's own arithmetic (math attention); losses finite over ")
    assert "sdpa=flash does nothing here: your code sets it" in said
    assert answer["loss_verdicts"] == []
    assert "full precision" not in said + json.dumps(answer)
