"""Stories of searches that others disturb, and on machines that move."""

import msgspec
import pytest

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.interference_readings import HostInterference
from autotune.core.records import SEARCH_PURPOSES, Limit
from autotune.core.requests import ProbeRequest
from autotune.launch.base import RESULT
from autotune.preparation.settings import Settings
from autotune.sampler.encoding import Encoding
from autotune.sampler.space import build
from autotune.study.store import NUMBER, Store
from autotune.study.valid_probes import BACK_OFF_SECONDS, BASELINE_EVERY, MOST_VAIN_REPEATS
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from autotune.tuning.engine import search
from tests.worlds import Listener, declared

LIMITS = {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 4))}
SMALL = {"tune": ("amp_dtype", "num_workers"), "limits": LIMITS}


class Disturbed(FakeLauncher):
    """A fake machine that is as fast as `speed(request)` says, and where others keep `busy(request)` of the time.

    `width(request)` is the relative half width of its rates, None: as it comes.
    """

    def __init__(self, *, busy=lambda request: 0.0, speed=lambda request: 1.0, width=lambda request: None, **options):
        super().__init__(facts=declared(), **options)
        self._busy, self._speed, self._width = busy, speed, width

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or result.measurement is None:
            return result
        share, speed, window = self._busy(request), self._speed(request), result.measurement
        steps = tuple(seconds / (1 - share) / speed for seconds in window.step_seconds)
        window = msgspec.structs.replace(
            window,
            step_seconds=steps,
            relative_half_width=self._width(request) or window.relative_half_width,
            interference=HostInterference(run_queue_wait_share=share, foreign_cores=float(share > 0)),
        )
        result = msgspec.structs.replace(result, measurement=window)
        codec.write(folder / RESULT, result)
        return result


def _search(folder, launcher, listener, **settings):
    pauses = []
    settings = {"sampler": "random", "time_budget_seconds": 1e6, **settings}  # one that does not end a search early
    told = Settings(target="model.py", study=folder, **settings)
    return search(told, launcher, listener, launcher.clock, pauses.append, foreign_cores=lambda pause: 0.0), pauses


def _learned(folder):
    """The probes that the sampler learns from: of the rounds of an ablation the first of what was not explored."""
    found, configs = [], set()
    for trial in load_view(folder).trials:
        if trial.purpose in SEARCH_PURPOSES and not (trial.purpose == "ablation" and trial.config in configs):
            found.append(trial)
            configs.add(trial.config)
    return found


def _known_to_the_sampler(folder):
    """Numbers of the probes that the study's database holds, and the size of its space."""
    asked = load_view(folder).request
    space = build(asked.facts, asked.environment, asked.goal, asked.baseline)
    store = Store(folder, asked, Encoding(space), needs_complete=False)
    known = [trial.user_attrs[NUMBER] for trial in store.trials()]
    store.close()
    return known, len(space.configs)


def test_a_disturbed_probe_is_repeated_after_a_pause_and_the_repeat_counts(tmp_path):
    disturbed = set()

    def once(request):
        """The first probe of every configuration that computes in bfloat16."""
        first = request.config["amp_dtype"] == "bfloat16" and request.config not in disturbed
        disturbed.add(request.config)
        return 0.9 if first and request.purpose == "search" else 0.0

    listener = Listener()
    answer, pauses = _search(tmp_path, Disturbed(busy=once), listener, **SMALL)

    assert answer.params["amp_dtype"] == "bfloat16"
    assert [trial.config["amp_dtype"] for trial in _learned(tmp_path)].count("bfloat16") == 4
    assert [trial.config["amp_dtype"] for trial in _learned(tmp_path)].count(None) == 2
    assert pauses == [BACK_OFF_SECONDS] * 2
    assert sum("Trying once more" in note and "waited 90%" in note for note in listener.notes) == 2
    assert Code.INTERFERENCE_THROUGHOUT not in {warning.code for warning in answer.warnings}


def test_a_repeat_costs_none_of_the_probes_that_were_asked_for(tmp_path):
    answer, _ = _search(tmp_path, Disturbed(busy=lambda request: 0.5), Listener(), probes=2, **SMALL)

    assert len({trial.config for trial in _learned(tmp_path) if trial.purpose != "ablation"}) == 3
    assert answer is not None


def test_a_disturbed_probe_stands_where_the_budget_has_no_time_for_another(tmp_path):
    listener = Listener()

    _search(tmp_path, Disturbed(busy=lambda request: 0.5), listener, time_budget_seconds=30, **SMALL)

    searched = [trial.config for trial in _learned(tmp_path) if trial.purpose == "search"]
    assert sum("There is no time for another try." in note for note in listener.notes) >= 1
    assert len(searched) == len(set(searched)) >= 1


def test_a_machine_that_is_always_busy_is_not_probed_twice_throughout(tmp_path):
    listener = Listener()

    answer, pauses = _search(tmp_path, Disturbed(busy=lambda request: 0.5), listener, probes=20)

    assert len(pauses) == 1 + MOST_VAIN_REPEATS  # the baseline was probed twice, too
    assert sum("no longer repeated" in note for note in listener.notes) == 1
    assert Code.INTERFERENCE_THROUGHOUT in {warning.code for warning in answer.warnings}


def test_the_database_knows_the_probe_that_counts_and_learns_nothing_new_from_a_resume(tmp_path):
    _search(tmp_path, Disturbed(busy=lambda request: 0.5 if request.number % 2 else 0.2), Listener(), **SMALL)
    _search(tmp_path, Disturbed(), Listener(), **SMALL)

    known, size = _known_to_the_sampler(tmp_path)
    assert len(known) == len(set(known)) == size
    assert len(_learned(tmp_path)) > len(known)


def test_the_baseline_is_probed_again_every_so_often_and_taught_to_nobody(tmp_path):
    listener = Listener()

    _search(tmp_path, Disturbed(), listener, probes=2 * BASELINE_EVERY + 1)

    purposes = [trial.purpose for trial in listener.trials if trial.purpose not in ("confirm", "ablation")]
    block = ["search"] * BASELINE_EVERY
    assert purposes == ["baseline", *block, "reference", *block, "reference", "search"]
    assert {trial.config for trial in listener.trials if trial.purpose == "reference"} == {listener.trials[0].config}
    assert not any("machine drift" in note for note in listener.notes)


@pytest.mark.parametrize("probes", [1, BASELINE_EVERY])
def test_a_short_search_does_not_look_for_drift(tmp_path, probes):
    listener = Listener()

    _search(tmp_path, Disturbed(), listener, probes=probes)

    assert all(trial.purpose != "reference" for trial in listener.trials)


def test_who_was_probed_on_a_slow_machine_leads_if_it_is_faster_all_the_same(tmp_path):
    """The machine loses half of its speed during the first nine probes: by rates alone the earliest would lead."""
    listener = Listener()
    slowing = Disturbed(speed=lambda request: 1 - min(request.number, BASELINE_EVERY + 1) / 18)

    # Seed 6: the fastest is probed late enough to be out by its rate alone.
    _search(tmp_path, slowing, listener, probes=14, tune=("amp_dtype", "num_workers", "channels_last"), seed=6)

    probed = [trial.config for trial in _learned(tmp_path)]
    confirmed = {trial.config for trial in listener.trials if trial.purpose == "confirm"}
    assert slowing.best(probed) in confirmed
    assert sum("machine drift" in note for note in listener.notes) == 1


def test_a_resume_teaches_the_database_no_reference(tmp_path):
    _search(tmp_path, Disturbed(), Listener(), probes=BASELINE_EVERY + 1)
    _search(tmp_path, Disturbed(), Listener(), probes=1)

    view, (known, _) = load_view(tmp_path), _known_to_the_sampler(tmp_path)
    (reference,) = [trial.number for trial in view.trials if trial.purpose == "reference"]
    assert reference not in known
    assert sorted(known) == [trial.number for trial in _learned(tmp_path)]
