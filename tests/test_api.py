"""`autotune.search` refuses what cannot be meant before it looks at target or machine."""

import sys

import pytest

import autotune
from autotune import api
from autotune.core.probe_tag import TAG
from autotune.errors import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == [], "nothing may be left behind by a call that was refused"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"time_budget": "soon"}, "'soon' is not a duration"),
        ({"time_budget": 0}, "time budget must be above 0 seconds, got 0"),
        ({"time_budget": float("nan")}, "time budget must be above 0 seconds, got nan"),
        ({"probes": 0}, "probes must be at least 1, got 0"),
        ({"headroom": 1.0}, r"headroom must be in \[0, 1\), got 1.0"),
        ({"global_batch": 0}, "global batch must be at least 1, got 0"),
        ({"global_batch": "held"}, "global batch must be keep, free or a whole number, got 'held'"),
        ({"sampler": "annealing"}, "sampler must be one of structured, tpe, gp, random, got 'annealing'"),
        ({"stability": "thorough"}, "stability must be one of off, quick, full, got 'thorough'"),
        ({"loss_tolerance": 1.0}, r"loss tolerance must be in \[0, 1\), got 1.0"),
        ({"seed": -1}, "seed must be from 0 to 4294967295, got -1"),
        ({"probes": "many"}, "probes must be at least 1, got 'many'"),
        ({"within": "120%"}, "a share must be between 0% and 100%, got 120%"),
        ({"price": "cheap"}, "'cheap' is not a number: write 95 or 99.9"),
        ({"memory_limit": "lots"}, "'lots' is not an amount of memory"),
        ({"mode": "again"}, "mode must be one of auto, resume, fresh, got 'again'"),
        ({"space": {"batch": (0, 64)}}, "batch_size must be a whole number of at least 1, got 0"),
        ({"space": {"batch_size": (64, 8)}}, "the range of batch_size from 64 to 8 is empty"),
        ({"space": {"batch_size": []}}, "batch_size has no value left"),
        ({"space": {"amp_dtype": (0, 5)}}, "amp_dtype must be"),
        ({"space": {"num_threads": (0, None)}}, "num_threads must be a whole number of at least 1, got 0"),
        ({"time_budget": "90"}, "'90' has no unit"),
        ({"device": "gpu"}, "no device called .gpu."),
        ({"space": {"amp": ["bfloat8"]}}, "amp_dtype must be"),
        ({"space": {"momentum": [0.9]}}, "there is no knob 'momentum'"),
        ({"tune": ["lr"]}, "there is no knob 'lr'"),
        ({"baseline": {"lr": 1}}, "there is no knob 'lr'"),
        ({"workers_expected": 2}, "--workers-expected 2 waits for workers of a database, and none is named"),
        ({"on": "auto"}, "no database is named in which they meet the search"),
        ({"workers_expected": 0}, "workers_expected must be at least 1, got 0"),
        ({"workers_expected": 0, "storage": "postgresql://host/fleet"}, "workers_expected must be at least 1, got 0"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused_with_its_value(arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        autotune.search("model.py", **arguments)

    assert str(caught.value).count(". ") >= 2  # what, why, what to do


def test_a_function_that_no_import_finds_cannot_be_a_target():
    for function in (lambda: None, pytest.raises(UsageError).__exit__):
        with pytest.raises(UsageError, match="cannot be imported by its name"):
            autotune.search(function)
    with pytest.raises(UsageError, match="not int"):
        autotune.search(3)


def build(): ...


def test_a_function_of_a_module_is_found_by_its_name(monkeypatch):
    assert api._place(build) == "tests.test_api:build"
    monkeypatch.setattr(sys.modules["tests.test_api"], "__package__", "")
    assert api._place(build) == f"{__file__}:build"


def test_a_search_within_a_probe_is_refused(monkeypatch):
    monkeypatch.setenv(TAG, "1")

    with pytest.raises(UsageError, match="behind if __name__ == '__main__'"):
        autotune.search("model.py")


def test_an_argument_that_nothing_takes_is_refused_as_python_does_it():
    with pytest.raises(TypeError, match="unexpected keyword argument 'withn'"):
        autotune.search("model.py", withn=0.1)
