"""Variables that a fork server's imports have read: what a target sets too late, and what torch sets by itself."""

import os

import pytest

from autotune.errors import EnvironmentUnfit
from autotune.targets import variables

SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """As in a process that was forked where torch._dynamo set its variable."""
    monkeypatch.delenv(SET_BY_TORCH, raising=False)
    monkeypatch.setattr(variables, "_later", {})
    monkeypatch.setattr(variables, "_at_fork", None)
    before = variables.read_early()
    os.environ[SET_BY_TORCH] = "cache-of-torch"
    variables.hide(before)
    variables.hold()


def test_what_torch_sets_again_before_it_is_shown_is_no_change():
    os.environ[SET_BY_TORCH] = "cache-of-torch"  # as torch.compile does in the function that builds the model

    variables.check()


def test_what_the_target_sets_otherwise_is_set_too_late():
    os.environ[SET_BY_TORCH] = "cache-of-mine"

    with pytest.raises(EnvironmentUnfit, match=SET_BY_TORCH):
        variables.check()


def test_what_was_hidden_is_shown_and_no_change():
    variables.show()
    variables.check()

    assert os.environ[SET_BY_TORCH] == "cache-of-torch"


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK"])
def test_what_torch_reads_only_when_it_looks_for_a_gpu_is_not_set_too_late(monkeypatch, name):
    monkeypatch.setenv(name, "1")  # the second is set by `import lightning`

    variables.check()


def test_a_number_of_threads_that_torch_has_not_seen_is_a_line_of_check(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    monkeypatch.setattr(variables, "_with_torch", None)
    variables.note_threads()
    assert variables.late_threads() == []

    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    (line,) = variables.late_threads()
    assert line.text.startswith("OMP_NUM_THREADS=1, set by your code, has no effect in a probe")
    assert "OMP_NUM_THREADS=1 autotune" in line.override
    assert line.needs_attention
