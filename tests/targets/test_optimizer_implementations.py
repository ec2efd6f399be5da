"""How optimizers compute their update: read, tried, and set in an optimizer that exists."""

import copy

import pytest
import torch

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.knobs.optimizer_implementations import OPTIONS
from autotune.targets.base import check_effect
from autotune.targets.optimizer_implementations import choose, possible_implementations, said_implementation, usual
from tests.targets_support import COMPLETE, inspect, start, watch

FUSING = [
    (torch.optim.Adam, {}),
    (torch.optim.AdamW, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adagrad, {}),
]


def _optimizer(kind=torch.optim.AdamW, **options):
    torch.manual_seed(0)
    return kind(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).parameters(), lr=0.01, **options)


def _steps(optimizer, count=10):
    torch.manual_seed(1)
    for _ in range(count):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return [parameter.detach().clone() for group in optimizer.param_groups for parameter in group["params"]]


def _kernels(optimizer):
    with torch.profiler.profile() as seen:
        _steps(optimizer, 1)
    return {event.key for event in seen.key_averages()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "default"), ({"fused": True}, "fused"), ({"foreach": True}, "foreach"), ({"foreach": False}, "for-loop"),
        ({"fused": False}, "for-loop"),
    ],
)  # fmt: skip
def test_what_the_user_wrote_is_read(options, expected):
    assert said_implementation([_optimizer(**options)]) == expected


def test_optimizers_that_differ_say_nothing():
    assert said_implementation([_optimizer(), _optimizer(fused=True)]) is None
    assert said_implementation([_optimizer(torch.optim.LBFGS)]) is None


@pytest.mark.parametrize(("kind", "options"), FUSING)
def test_the_classes_of_torch_are_asked_what_they_can_do_here(kind, options):
    assert possible_implementations([_optimizer(kind, **options)]) == ("for-loop", "foreach", "fused")
    assert usual([_optimizer(kind, **options)]) == "for-loop"  # on a CPU


def test_what_a_class_or_an_option_refuses_is_not_possible():
    assert possible_implementations([_optimizer(torch.optim.RMSprop)]) == ("for-loop", "foreach")
    assert possible_implementations([_optimizer(torch.optim.AdamW), _optimizer(torch.optim.RMSprop)]) == (
        "for-loop",
        "foreach",
    )
    assert possible_implementations([_optimizer(torch.optim.LBFGS)]) == ()
    assert possible_implementations([_optimizer(differentiable=True)]) == ()
    complex_ones = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))])
    assert possible_implementations([complex_ones]) == ()


def test_a_class_with_a_step_of_its_own_is_left_alone():
    class Own(torch.optim.AdamW):
        def step(self, closure=None):
            return super().step(closure)

    own = _optimizer(Own)
    choose([own], OPTIONS["fused"])

    assert possible_implementations([own]) == ()
    assert said_implementation([own]) == "default"


@pytest.mark.parametrize(("kind", "options"), FUSING)
@pytest.mark.parametrize("name", OPTIONS)
def test_ten_steps_are_the_same_within_rounding(kind, options, name):
    expected = _steps(_optimizer(kind, **options))
    changed = _optimizer(kind, **options)
    choose([changed], OPTIONS[name])

    for one, other in zip(expected, _steps(changed), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "options"), FUSING)
def test_the_fused_kernel_is_what_runs(kind, options):
    changed, plain = _optimizer(kind, **options), _optimizer(kind, **options)
    choose([changed], OPTIONS["fused"])

    kernel = f"aten::_fused_{kind.__name__.lower()}_"
    assert kernel in _kernels(changed)
    assert kernel not in _kernels(plain)


@pytest.mark.parametrize(("kind", "options"), FUSING)
def test_it_may_be_changed_between_steps_and_its_state_goes_on(kind, options):
    expected = _optimizer(kind, **options)
    changed = _optimizer(kind, **options)
    _steps(expected, 5), _steps(changed, 5)
    choose([changed], OPTIONS["fused"])

    for one, other in zip(_steps(expected), _steps(changed), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_a_state_is_read_by_an_optimizer_of_the_other_kind():
    fused, plain = _optimizer(fused=True), _optimizer()
    _steps(fused)
    plain.load_state_dict(copy.deepcopy(fused.state_dict()))

    assert said_implementation([plain]) == "fused"  # a checkpoint brings its options along
    choose([plain], OPTIONS["foreach"])
    assert said_implementation([plain]) == "foreach"
    _steps(plain)


def test_what_the_user_had_fused_can_be_undone_for_a_gradient_scaler():
    changed = _optimizer(fused=True)
    choose([changed], OPTIONS["foreach"])

    assert not changed._step_supports_amp_scaling
    assert {group["fused"] for group in changed.param_groups} == {None}


def test_a_schedule_that_was_made_before_goes_on():
    optimizer = _optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    choose([optimizer], OPTIONS["fused"])
    _steps(optimizer, 1)
    schedule.step()

    assert optimizer.param_groups[0]["lr"] == 0.005


def test_without_options_nothing_is_touched():
    optimizer = _optimizer(fused=True)
    choose([optimizer], {})

    assert said_implementation([optimizer]) == "fused"


BATCHES = COMPLETE + "baseline = {'batch_size': 4}\n"


def _of(line):
    return BATCHES + f"def optimizer(params): return torch.optim.{line}\n"


def test_inspection_tells_what_the_optimizer_can_do_and_what_it_costs(tmp_path):
    found = inspect(tmp_path, _of("AdamW(params)"))

    assert found.optimizer.names == ("AdamW",)
    assert (found.optimizer.usual, found.optimizer.possible) == ("for-loop", ("for-loop", "foreach", "fused"))
    assert 0 < found.optimizer.step_share < 1
    assert found.found == {}


def test_what_the_user_wrote_is_found(tmp_path):
    found = inspect(tmp_path, _of("AdamW(params, fused=True)"))

    assert found.found == {"fused_optimizer": "fused"}


def test_inspection_with_a_value_does_not_take_it_for_the_users(tmp_path):
    asked = Config(values=defaults() | {"batch_size": 4, "fused_optimizer": "foreach"})

    assert inspect(tmp_path, _of("AdamW(params, fused=True)"), asked).found == {}


@pytest.mark.parametrize(("value", "said_by_it"), [(None, "default"), ("fused", "fused"), ("foreach", "foreach")])
def test_our_loop_trains_with_it(tmp_path, value, said_by_it):
    session = start(tmp_path, _of("AdamW(params)"), batch_size=4, fused_optimizer=value)
    session.train(watch(2))

    assert session.observed().optimizer_implementation == said_by_it
    check_effect(session, {"fused_optimizer": value})


def test_groups_that_differ_are_left_as_they_are(tmp_path):
    line = "AdamW([{'params': params[:1]}, {'params': params[1:], 'fused': True}])"
    session = start(tmp_path, _of(line), batch_size=4)
    session.train(watch(1))

    assert session.observed().optimizer_implementation is None  # its groups differ


def test_float16_is_scaled_with_a_fused_optimizer_too(tmp_path):
    session = start(tmp_path, _of("SGD(params, lr=0.1)"), batch_size=4, fused_optimizer="fused", amp_dtype="float16")
    recorder = watch(3)
    session.train(recorder)

    assert session.observed().optimizer_implementation == "fused"
    assert session.loss_scale() is not None
