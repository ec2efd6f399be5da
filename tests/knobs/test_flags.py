"""The flags that people ask about: where each is offered, what it sets, and how that is seen."""

import pytest
import torch

from autotune.core.records import Goal, Limit, OptimizerFacts
from autotune.knobs import KNOBS, knob
from autotune.knobs.base import Plan
from autotune.knobs.observed import Observed
from autotune.knobs.tf32 import state
from autotune.knobs.torch_switch import TorchSwitch
from autotune.knobs.wording import Framework
from autotune.targets import switches
from autotune.targets.attention import Attention
from autotune.testing.knob_contract import CPU, circumstances
from tests.worlds import environment, facts, space

AMPERE, TURING = environment(capability="8.0"), environment(capability="7.5")
ALL = ("for-loop", "foreach", "fused")
KERNELS = {"float32": ("efficient",), "bfloat16": ("cudnn", "efficient"), "float16": ("cudnn", "efficient")}


def _optimizer(share=0.2, usual="for-loop", possible=ALL):
    return OptimizerFacts(names=("AdamW",), usual=usual, possible=possible, step_share=share)


def _offered(name, on=AMPERE, limit=None, **changed):
    return knob(name).domain(circumstances(on, facts=facts(**changed), limit=limit))


@pytest.fixture
def torchs_own():
    """Torch's switches are given back."""
    before, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("highest")  # whatever tests before left behind
    torch.backends.cudnn.benchmark = False
    yield
    torch.set_float32_matmul_precision(before)
    torch.backends.cudnn.benchmark = benchmark
    for call in ("enable_cudnn_sdp", "enable_flash_sdp", "enable_mem_efficient_sdp", "enable_math_sdp"):
        getattr(torch.backends.cuda, call)(True)


def _applied(name, value):
    plan = Plan(device="cpu")
    knob(name).apply(value, plan)
    for switch in plan.setup:
        switch()


@pytest.mark.parametrize(
    ("on", "changed", "domain"),
    [
        (CPU, {"optimizer": _optimizer()}, (None, "foreach", "fused")),
        (CPU, {"optimizer": _optimizer(share=0.005)}, (None,)),  # nothing to gain that could be measured
        (CPU, {"optimizer": _optimizer(possible=("for-loop", "foreach"))}, (None, "foreach")),
        (CPU, {"optimizer": None}, (None,)),  # an earlier version did not look
        (AMPERE, {"optimizer": _optimizer(0.01, "foreach")}, (None, "fused")),
        (AMPERE, {"optimizer": _optimizer(possible=())}, (None,)),
        (CPU, {"optimizer": _optimizer(), "found": {"fused_optimizer": "fused"}}, ("for-loop", "foreach", "fused")),
        (CPU, {"optimizer": _optimizer(0.001), "found": {"fused_optimizer": "fused"}}, ("fused",)),
    ],
)
def test_updates_are_offered_where_the_optimizer_has_them_and_they_can_gain(on, changed, domain):
    assert _offered("fused_optimizer", on, **changed) == domain


def test_an_update_that_torch_would_choose_is_no_other_configuration():
    here = circumstances(CPU, facts=facts(optimizer=_optimizer()))
    written = circumstances(CPU, facts=facts(optimizer=_optimizer(), found={"fused_optimizer": "fused"}))
    canonical = knob("fused_optimizer").canonical

    assert canonical({"fused_optimizer": "for-loop"}, here) is None
    assert canonical({"fused_optimizer": "fused"}, here) == "fused"
    assert canonical({"fused_optimizer": None}, written) == "fused"
    assert canonical({"fused_optimizer": "for-loop"}, written) == "for-loop"


@pytest.mark.parametrize(
    ("on", "found", "domain"),
    [
        (AMPERE, {}, (False, True)), (TURING, {}, (False,)), (CPU, {}, (False,)),
        (AMPERE, {"tf32": True}, (True,)),
    ],
)  # fmt: skip
def test_tf32_is_offered_where_the_device_has_it_and_the_code_leaves_it_open(on, found, domain):
    assert _offered("tf32", on, found=found) == domain


def test_under_autocast_there_is_no_tf32():
    open_space = space(Goal(global_batch=64, limits={}), of=facts(space={}), on=AMPERE)

    assert {one["tf32"] for one in open_space.configs if one["amp_dtype"] is None} == {False, True}
    assert {one["tf32"] for one in open_space.configs if one["amp_dtype"] is not None} == {False}


def test_three_states_of_float32_have_words_of_their_own():
    said = {state(products=False, convolutions=False), state(products=False, convolutions=True)}
    said |= {state(products=True, convolutions=True), state(products=True, convolutions=False)}

    assert len(said) == 4
    assert state(products=False, convolutions=False) == "strict float32"


def test_tf32_is_set_by_the_one_call_that_all_readers_understand(torchs_own):
    _applied("tf32", False)
    assert torch.get_float32_matmul_precision() == "highest"
    _applied("tf32", True)

    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(("newer", "word"), [("ieee", "strict float32"), ("tf32", "convolutions in TF32")])
def test_the_newer_switch_of_convolutions_alone_is_understood(torchs_own, monkeypatch, newer, word):
    """`torch.backends.cudnn.allow_tf32` cannot be read then."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    convolutions = torch.backends.cudnn.conv
    before, convolutions.fp32_precision = convolutions.fp32_precision, newer
    rnn, torch.backends.cudnn.rnn.fp32_precision = torch.backends.cudnn.rnn.fp32_precision, "none"
    try:
        (line,) = switches.float32_check_lines("cuda")
    finally:
        convolutions.fp32_precision, torch.backends.cudnn.rnn.fp32_precision = before, rnn

    assert word in line.text


@pytest.mark.parametrize("one", [one for one in KNOBS if isinstance(one, TorchSwitch)], ids=lambda one: one.name)
def test_a_switch_that_stands_on_is_seen_where_its_device_is_used(torchs_own, monkeypatch, one):
    assert one.seen(Observed(**switches.standing([]))) == (), "no CUDA here"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert one.seen(Observed(**switches.standing([]))) == (False,)
    assert one.found(Observed(**switches.standing([]))) is None

    _applied(one.name, True)

    assert one.seen(Observed(**switches.standing([]))) == (True,)
    assert one.found(Observed(**switches.standing([]))) is True


@pytest.mark.parametrize(
    ("on", "changed", "domain"),
    [
        (AMPERE, {}, (False, True)), (CPU, {}, (False,)), (AMPERE, {"has_convolution": False}, (False,)),
        (AMPERE, {"is_deterministic": True}, (False,)), (AMPERE, {"found": {"cudnn_benchmark": True}}, (True,)),
    ],
)  # fmt: skip
def test_cudnn_times_its_algorithms_only_for_convolutions_that_may_vary(on, changed, domain):
    assert _offered("cudnn_benchmark", on, **changed) == domain


@pytest.mark.parametrize(
    ("on", "changed", "domain"),
    [
        (AMPERE, {}, (None,)),  # no attention was seen
        (AMPERE, {"attention": KERNELS}, (None, "cudnn", "efficient")),
        (CPU, {"attention": KERNELS}, (None,)),
        (CPU, {"attention": {"float32": ("math",), "bfloat16": ("math",)}}, (None, "math")),
        (CPU, {"attention": {"float32": ("math",), "bfloat16": ()}}, (None,)),
        (AMPERE, {"attention": KERNELS, "found": {"sdpa_backend": "math"}}, ("math",)),
    ],
)
def test_kernels_of_attention_are_offered_where_a_step_can_use_them(on, changed, domain):
    assert _offered("sdpa_backend", on, **changed) == domain


def test_a_kernel_that_a_dtype_does_not_have_is_no_other_configuration():
    here = circumstances(AMPERE, facts=facts(attention=KERNELS))
    canonical = knob("sdpa_backend").canonical

    assert canonical({"sdpa_backend": "cudnn", "amp_dtype": None}, here) is None
    assert canonical({"sdpa_backend": "cudnn", "amp_dtype": "bfloat16"}, here) == "cudnn"


def test_on_a_cpu_the_math_kernel_is_another_configuration_in_half_precision_only():
    here = circumstances(CPU, facts=facts(attention={"float32": ("math",), "bfloat16": ("math",)}))
    canonical = knob("sdpa_backend").canonical

    assert canonical({"sdpa_backend": "math", "amp_dtype": None}, here) is None
    assert canonical({"sdpa_backend": "math", "amp_dtype": "bfloat16"}, here) == "math"


@pytest.mark.parametrize("value", ["flash", "math", "efficient", "cudnn"])
def test_one_kernel_alone_is_enabled_and_that_is_seen(torchs_own, value):
    assert knob("sdpa_backend").seen(Observed(**switches.standing([]))) == (None,)

    _applied("sdpa_backend", value)

    assert switches.enabled() == {value}
    assert knob("sdpa_backend").seen(Observed(**switches.standing([]))) == (value,)
    assert knob("sdpa_backend").found(Observed(**switches.standing([]))) == value


def test_what_one_kernel_cannot_take_is_an_error_and_not_slow_in_silence(torchs_own):
    query = torch.randn(1, 2, 8, 16)
    _applied("sdpa_backend", "efficient")  # which CPUs do not have

    with pytest.raises(RuntimeError, match=r"No (viable|available)"):
        torch.nn.functional.scaled_dot_product_attention(query, query, query)


def _attended(layer, *inputs):
    seen = Attention()
    with seen:
        layer(*inputs).sum().backward()
    return seen


def test_calls_of_attention_are_found_in_the_models_of_torch(torchs_own):
    from torch.nn.functional import scaled_dot_product_attention as early

    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0)
    query = torch.randn(1, 2, 8, 16, requires_grad=True)

    for seen in (_attended(layer, torch.randn(3, 4, 16)), _attended(lambda one: early(one, one, one), query)):
        # a CPU has its flash kernel, and takes it anyway
        assert (seen.found()["float32"], seen.found()["bfloat16"]) == (("math",), ("math",))
    assert _attended(torch.nn.Linear(4, 2), torch.randn(3, 4)).found() == {}


def test_a_kernel_beside_torchs_own_choice_is_found(monkeypatch):
    from torch.nn.attention import SDPBackend

    monkeypatch.setattr("autotune.targets.attention.BACKENDS", {"flash": SDPBackend.FLASH_ATTENTION})
    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    plain, dropped = (
        lambda one, p=p: torch.nn.functional.scaled_dot_product_attention(one, one, one, None, p) for p in (0.0, 0.1)
    )

    def both(one):
        return plain(one) + dropped(one)  # with dropout a CPU takes the math kernel

    assert _attended(plain, query).found()["float32"] == ()
    assert _attended(dropped, query).found()["float32"] == ()
    assert _attended(both, query).found()["float32"] == ()  # not every call can take it


def test_where_the_code_has_disabled_kernels_the_choice_is_made(torchs_own):
    torch.backends.cuda.enable_math_sdp(False)
    query = torch.randn(1, 2, 8, 16, requires_grad=True)

    assert _attended(lambda one: torch.nn.functional.scaled_dot_product_attention(one, one, one), query).found() == {}


@pytest.mark.parametrize(
    ("name", "value", "framework", "setup", "arguments"),
    [
        ("tf32", True, Framework.TORCH, ('torch.set_float32_matmul_precision("high")',), {}),
        ("tf32", True, Framework.HUGGING_FACE, ('torch.set_float32_matmul_precision("high")',), {"tf32": True}),
        ("cudnn_benchmark", True, Framework.LIGHTNING, (), {"benchmark": True}),
        ("cudnn_benchmark", True, Framework.ACCELERATE, ("torch.backends.cudnn.benchmark = True",), {}),
        ("fused_optimizer", "fused", Framework.TORCHTITAN, (), {"optimizer.implementation": "fused"}),
    ],
)
def test_each_framework_is_told_in_its_words(name, value, framework, setup, arguments):
    said = knob(name).wording(value, framework, "cuda")

    assert (said.setup, dict(said.arguments)) == (setup, arguments)


def test_transformers_refuses_tf32_without_a_gpu_so_it_is_not_told():
    assert knob("tf32").wording(True, Framework.HUGGING_FACE, "cpu").arguments == {}


@pytest.mark.parametrize("name", ["fused_optimizer", "tf32", "cudnn_benchmark", "sdpa_backend"])
def test_a_plain_cpu_host_is_offered_nothing_that_cannot_gain(name):
    assert len(_offered(name, CPU)) == 1


def test_what_is_listed_is_searched_wherever_it_is():
    assert _offered("sdpa_backend", CPU, limit=Limit(values=("math",))) == ("math",)
    assert _offered("tf32", CPU, limit=Limit(values=(True,))) == (True,)
