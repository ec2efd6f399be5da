"""The profile that a search makes of its baseline: once, briefly, and nothing that fails there harms it."""

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import EnvironmentUnfit
from autotune.profile.records import ProfileRequest
from autotune.profile.stage import LEAST_LINE_SHARE, PASS_SECONDS, slow_lines
from autotune.report.answer import MOST_ANSWER_LINES, answer_block
from autotune.study import disk
from autotune.study.recommendation import load_result
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from tests.profiling import readings, slow
from tests.targets_support import COMPLETE
from tests.worlds import Listener, config, declared, facts, searched

FOUND = (slow(share=0.3), slow("collector", 0.1, place="model.py:40 in step", what="gc.collect()"), slow(share=0.06))


class Asked(FakeLauncher):
    """A simulated machine that remembers what it was asked, in order."""

    def __init__(self, *lines, **options):
        options = {"facts": declared(), "results": {ProfileRequest: lambda asked: readings(*lines)}, **options}
        super().__init__(**options)
        self.requests = []

    def run(self, request, folder):
        self.requests.append(request)
        return super().run(request, folder)

    @property
    def profiles(self):
        return [one for one in self.requests if isinstance(one, ProfileRequest)]


def words(listener):
    return [note for note in listener.notes if "not looked for" in note]


def test_the_two_most_expensive_lines_of_the_baseline_stand_in_the_answer_and_in_best_json(tmp_path):
    launcher = Asked(*FOUND)

    answer = searched(tmp_path, launcher, probes=4)

    first, second = answer.slow_lines
    assert first.code is second.code is Code.SLOW_LINE
    assert first.numbers["place"] == "model.py:21 in loss"
    assert first.numbers["milliseconds"] == pytest.approx(30)
    assert first.numbers["share"] == pytest.approx(0.3)
    assert second.numbers["milliseconds"] == pytest.approx(10)
    assert "Instead: leave it out: Python collects by itself." in second.text
    assert load_result(tmp_path).slow_lines == answer.slow_lines
    (asked,) = launcher.profiles
    assert asked.config == load_view(tmp_path).request.baseline
    assert asked.extent == "brief"
    assert (tmp_path / "profile" / "0000" / "result.json").is_file()


class Leaking(Asked):
    """One whose training takes 8 MiB more with every step."""

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest):
            return result
        track = tuple((step, (1 << 30) + (step << 23)) for step in range(30))
        return replace(result, measurement=replace(result.measurement, memory_track=track))


@pytest.mark.parametrize(
    ("lines", "code", "place"),
    [
        ((*FOUND, slow("growth", 0.0, what="kept")), Code.MEMORY_GROWS_LINE, "model.py:21 in loss"),
        (FOUND, Code.MEMORY_GROWS, None),
    ],
    ids=["seen", "not seen"],
)
def test_memory_that_grows_in_probes_is_told_with_the_line_that_the_profile_of_the_baseline_saw(
    tmp_path, lines, code, place
):
    answer = searched(tmp_path, Leaking(*lines), probes=4)

    (said,) = [one for one in answer.warnings if one.code in (Code.MEMORY_GROWS, Code.MEMORY_GROWS_LINE)]
    assert (said.code, said.numbers.get("place")) == (code, place)
    assert said.numbers["step_bytes"] == 8 << 20
    assert load_result(tmp_path).warnings == answer.warnings


def test_best_json_has_the_kind_and_its_numbers_and_no_words_of_ours(tmp_path):
    searched(tmp_path, Asked(slow("growth", 0.3, what="history", bytes=1_048_600.0, steps_left=900)), probes=4)

    (stored,) = codec.decode((tmp_path / "best.json").read_bytes(), dict)["slow_lines"]

    assert stored["numbers"] == {
        "place": "model.py:21 in loss", "milliseconds": 30.0, "share": 0.3, "step_milliseconds": 100.0,
        "kind": "growth", "line": "history[:] = scores.tolist()", "what": "history", "bytes": 1_048_600.0,
        "steps_left": 900,
    }  # fmt: skip
    assert "memory grows by 1 MiB a step: what is made here is kept, in history; no memory is left" in stored["text"]


def test_an_answer_of_an_earlier_version_whose_slow_line_holds_the_words_says_them(tmp_path):
    searched(tmp_path, Asked(*FOUND[:1]), probes=4)
    file = tmp_path / "best.json"
    stored = codec.decode(file.read_bytes(), dict)
    (line,) = stored["slow_lines"]
    for name in ("what", "count"):
        del line["numbers"][name]
    line["numbers"] |= {"seen": ".tolist() is read twice", "instead": "read it now and then"}
    line["text"] = "model.py:21 in loss: 30.0 ms a step (30%), .tolist() is read twice. Instead: read it now and then."
    file.write_bytes(codec.encode(stored))

    answer = load_result(tmp_path)

    (found,) = answer.slow_lines
    assert f"{found.meaning} {found.next_step}" == found.text == line["text"]
    assert "model.py:21: 30.0 ms a step (30%) → read it now and then" in answer_block(answer).plain


def test_it_is_made_once_after_the_baseline_and_not_again_when_the_search_goes_on(tmp_path):
    launcher = Asked(*FOUND)

    searched(tmp_path, launcher, probes=3)
    again = searched(tmp_path, launcher, probes=5)

    assert len(launcher.profiles) == 1
    assert len(again.slow_lines) == 2
    place = launcher.requests.index(launcher.profiles[0])
    before = [one for one in launcher.requests[:place] if isinstance(one, ProbeRequest)]
    assert {one.purpose for one in before} <= {"baseline", "search"}
    assert any(one.purpose == "baseline" for one in before)


def test_ranks_are_profiled_together(tmp_path):
    launcher = Asked(*FOUND, facts=replace(declared(), ranks=2))

    searched(tmp_path, launcher, probes=4)

    (asked,) = launcher.profiles
    assert asked.ranks == 2


def test_it_is_not_made_where_it_is_switched_off(tmp_path):
    launcher, listener = Asked(*FOUND), Listener()

    answer = searched(tmp_path, launcher, listener, probes=3, profile="off")

    assert launcher.profiles == []
    assert answer.slow_lines == ()
    assert words(listener) == []


@pytest.mark.parametrize(
    ("options", "settings", "why"),
    [
        ({}, {"time_budget_seconds": 60.0}, "the time budget is too short"),
        ({"facts": facts(owns_loop=True)}, {}, "a loop of its own"),
        ({"faults": {ProfileRequest: lambda asked: Outcome.TIMEOUT}}, {}, "timeout"),
        ({"faults": {ProfileRequest: lambda asked: Outcome.OOM_DEVICE}}, {}, "oom-device"),
    ],
    ids=["short", "own-loop", "hangs", "memory"],
)
def test_where_it_cannot_be_made_that_is_said_and_the_search_goes_on(tmp_path, options, settings, why):
    listener = Listener()

    answer = searched(tmp_path, Asked(*FOUND, **options), listener, probes=3, **settings)

    assert answer.slow_lines == ()
    (said,) = words(listener)
    assert why in said


def test_a_launcher_that_cannot_start_it_ends_nothing(tmp_path):
    class Unfit(Asked):
        def run(self, request, folder):
            if isinstance(request, ProfileRequest):
                raise EnvironmentUnfit("The probe process could not be started.")
            return super().run(request, folder)

    listener = Listener()

    answer = searched(tmp_path, Unfit(), listener, probes=3)

    assert answer.slow_lines == ()
    assert "could not be started" in words(listener)[0]


def test_a_damaged_profile_is_made_again(tmp_path):
    searched(tmp_path, Asked(*FOUND), probes=3)
    (tmp_path / "profile" / "0000" / "result.json").write_text("{")

    answer = searched(tmp_path, launcher := Asked(*FOUND), probes=5)
    searched(tmp_path, launcher, probes=6)

    assert len(launcher.profiles) == 1
    assert len(answer.slow_lines) == 2


def test_a_study_without_a_profile_opens_as_before(tmp_path):
    answer = searched(tmp_path, Asked(), probes=3, profile="off")
    content = codec.encode(answer).decode()
    assert '"slow_lines"' in content
    (tmp_path / disk.BEST).write_text("\n".join(line for line in content.splitlines() if "slow_lines" not in line))

    assert load_view(tmp_path).recommendation == answer


def test_only_what_costs_a_twentieth_of_a_step_is_told_and_no_memory():
    little, growth = slow(share=LEAST_LINE_SHARE - 0.001), slow("growth", 0.0, bytes=2.0**20)

    assert slow_lines(readings(little, growth), 0.0) == ()
    assert [one.numbers["kind"] for one in slow_lines(readings(growth, slow(share=0.2)), 0.0)] == ["host read"]


@pytest.mark.parametrize(("waiting", "count"), [(0.3, 1), (0.01, 0)])
def test_slow_samples_are_mended_where_the_recommended_step_does_not_wait_for_them(waiting, count):
    tail = slow("tail", 0.3, what="17", ratio=20.0)

    assert len(slow_lines(readings(tail), waiting)) == count


def test_the_answer_of_a_search_fits_its_lines_with_them(tmp_path):
    answer = searched(tmp_path, Asked(*FOUND), probes=12)

    shown = answer_block(answer, load_view(tmp_path)).plain.splitlines()

    assert len(shown) <= MOST_ANSWER_LINES
    assert max(len(line) for line in shown if str(tmp_path) not in line) <= 100
    own = [line for line in shown if "model.py:" in line]
    assert own[0] == "  Your code model.py:21: 30.0 ms a step (30%) → keep a tensor (detach), read it now and then"
    assert len(own) == 2


@pytest.mark.slow
def test_a_forked_process_profiles_in_brief(tmp_path, forking_launcher):
    (tmp_path / "model.py").write_text(
        COMPLETE + "import gc\ndef loss(model, batch):\n    gc.collect()\n    return model(batch[0]).sum()\n"
    )
    asked = ProfileRequest(
        target=str(tmp_path / "model.py"),
        config=config(batch_size=8),
        device="cpu",
        extent="brief",
        seconds=PASS_SECONDS,
    )
    (tmp_path / "0000").mkdir()

    found = forking_launcher.run(asked, tmp_path / "0000")

    assert found.outcome is Outcome.OK, found.failure
    assert found.isolation == "fork"
    assert "gc.collect()" in slow_lines(found, 0.0)[0].text
