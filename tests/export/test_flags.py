"""The flags in the words of each framework: arguments where it has one, lines of code where not."""

import ast

import pytest

from autotune.core.records import OptimizerFacts
from autotune.export import deepspeed
from autotune.export.programs import exported_text
from autotune.knobs.wording import Framework
from tests.exporting import PROGRAMS, exported

FLAGS = {"fused_optimizer": "fused", "tf32": True, "cudnn_benchmark": True, "sdpa_backend": "flash"}
ADAMW = OptimizerFacts(names=("AdamW",), usual="foreach", possible=("for-loop", "foreach", "fused"), step_share=0.1)
SGD = OptimizerFacts(names=("SGD",), usual="foreach", possible=("for-loop", "foreach", "fused"), step_share=0.1)


def _text(framework, facts=ADAMW, values=FLAGS):
    return exported_text(framework, exported(framework, values, "cuda", optimizer=facts))


@pytest.mark.parametrize("framework", PROGRAMS)
def test_every_program_says_them_and_is_python(framework):
    text = _text(framework)

    ast.parse(text)
    assert 'torch.set_float32_matmul_precision("high")' in text
    assert "torch.backends.cuda.enable_flash_sdp(True)" in text
    assert "torch.backends.cuda.enable_math_sdp(False)" in text
    assert "torch.backends.cudnn.benchmark = True" in text or "benchmark=True" in text
    assert "fused" in text


def test_transformers_has_arguments_for_two_of_them():
    text = _text(Framework.HUGGING_FACE)

    assert "tf32=True" in text and 'optim="adamw_torch_fused"' in text
    assert "# and make your optimizer with fused=True" not in text


def test_an_optimizer_that_transformers_has_no_fused_name_for_is_the_users_to_make():
    text = _text(Framework.HUGGING_FACE, SGD)

    assert "optim=" not in text and "# and make your optimizer with fused=True" in text


def test_lightning_has_an_argument_for_one():
    text = _text(Framework.LIGHTNING)

    assert "benchmark=True" in text and "cudnn.benchmark" not in text
    assert "# and make your optimizer with fused=True" in text


def test_a_loop_makes_its_optimizer_with_it():
    assert "# make the optimizer here, from model.parameters(), with fused=True" in _text(Framework.TORCH)


@pytest.mark.parametrize(("framework", "is_loop"), [(Framework.TORCH, True), (Framework.LIGHTNING, False)])
def test_a_loop_says_that_its_optimizer_stands_for_several(framework, is_loop):
    several = OptimizerFacts(names=("SparseAdam", "Adam"), usual="for-loop", possible=("for-loop",), step_share=0.1)

    said = "`optimizer` stands for your SparseAdam and Adam, each made of its own parameters: call each of them."
    assert (said in _text(framework, several)) is is_loop
    assert "`optimizer` stands" not in _text(framework)


def test_a_loop_says_why_its_loader_drops_the_last_batch():
    assert "# drop_last: a last batch that is short is left out, as it was when measured\n" in _text(Framework.TORCH)


def test_torchtitan_has_an_argument_for_the_update():
    text = _text(Framework.TORCHTITAN)

    assert "--optimizer.implementation fused" in text
    assert 'in the code: torch.set_float32_matmul_precision("high")' in text


def test_deepspeed_is_told_beside_its_file():
    said = deepspeed.lines_beside(exported(Framework.DEEPSPEED, FLAGS, "cuda", optimizer=ADAMW))

    assert "# and make your optimizer with fused=True" in said


@pytest.mark.parametrize("framework", [*PROGRAMS, Framework.TORCHTITAN])
def test_what_is_left_alone_is_not_said(framework):
    text = _text(framework, values={})

    assert not any(word in text for word in ("fused", "tf32", "float32_matmul", "cudnn", "sdp"))
