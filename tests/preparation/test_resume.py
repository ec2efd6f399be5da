"""Going on with a study, and refusing to mix what cannot be compared."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Config, Goal, Limit, OptimizerFacts
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Failure, Inspection, Outcome
from autotune.errors import NoRecommendation, StudyError, StudyNotFound, TargetError
from autotune.launch.base import RESULT
from autotune.machine.environment import fingerprint
from autotune.preparation.open_study import begin, check_alike, check_resumable, open_study, preview
from autotune.preparation.prepare import settle
from autotune.preparation.settings import Settings, goal_names
from autotune.sampler.space import build
from autotune.study import disk, identity
from autotune.study.lock import Lock
from autotune.study.recommendation import load_result
from autotune.testing import FakeLauncher
from tests.studies import RECORDED, STUDIES
from tests.worlds import GIB, config, declared, environment, facts, study_request

REQUEST = study_request()


@pytest.fixture
def folder(tmp_path):
    return disk.make(tmp_path / "study")


def compare(old, new):
    return identity.differences_of(old, new, goal_names())


def _begin(folder, request=REQUEST, mode="auto"):
    lock = Lock(folder)
    try:
        return folder, begin(folder, request, mode, lock) is not None
    finally:
        lock.release()


def test_a_new_study_says_what_is_asked_and_stays_out_of_version_control(folder):
    place, resumed = _begin(folder)

    assert (place, resumed) == (folder, False)
    assert disk.read_request(folder) == REQUEST
    assert (folder / ".gitignore").read_text() == disk.IGNORED


def test_what_somebody_else_keeps_in_the_folder_stays(folder):
    (folder / ".gitignore").write_text("mine\n")

    _begin(folder)

    assert (folder / ".gitignore").read_text() == "mine\n"


def _earlier(record):
    """As a version wrote it that knew five knobs."""
    known = ("batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers", "channels_last")
    return {name: record[name] for name in known}


def test_a_study_of_a_version_with_fewer_knobs_goes_on_where_the_new_ones_have_one_value(folder):
    older = replace(
        REQUEST, baseline=Config(values=_earlier(REQUEST.baseline.values)), domains=_earlier(REQUEST.domains)
    )
    newer = replace(REQUEST, environment=environment(default_threads=8))
    _begin(folder, older)

    assert _begin(folder, newer) == (folder, True)


def test_a_study_of_a_version_with_fewer_knobs_says_which_new_one_there_is_to_search(folder):
    wider = replace(REQUEST, domains={**REQUEST.domains, "num_threads": (1, None)})
    _begin(folder, replace(REQUEST, domains=_earlier(REQUEST.domains)))

    with pytest.raises(StudyError, match=r"the search of num_threads was none, is 1,none"):
        _begin(folder, wider)


def test_a_study_of_a_version_that_did_not_note_how_batches_look_goes_on(folder):
    newer = replace(REQUEST, facts=facts(has_collate=True, has_sampler=True, batch_layout="dict"))
    _begin(folder)

    assert _begin(folder, newer) == (folder, True)


def test_a_study_of_a_version_that_did_not_note_the_framework_goes_on(folder):
    _begin(folder)

    assert _begin(folder, replace(REQUEST, facts=facts(framework="lightning"))) == (folder, True)


def test_another_number_of_threads_in_the_shell_is_another_circumstance(folder):
    _begin(folder, replace(REQUEST, environment=environment(default_threads=8)))

    with pytest.raises(StudyError, match="the machine's default threads were 8, are 1"):
        _begin(folder, replace(REQUEST, environment=environment(default_threads=1)))


def test_what_makes_it_another_machine_is_told_and_not_what_varies_among_alike_ones(folder):
    _begin(folder)
    other = environment(device_name="NVIDIA A100", host_bytes=REQUEST.environment.host_bytes + 4096)

    with pytest.raises(StudyError, match=r"device name was .*, is NVIDIA A100") as refused:
        _begin(folder, replace(REQUEST, environment=other))

    assert "host bytes" not in str(refused.value)


@pytest.mark.parametrize("mode", ["auto", "resume"])
def test_the_same_request_goes_on(folder, mode):
    _begin(folder)

    assert _begin(folder, study_request(), mode) == (folder, True)


def test_resuming_where_nothing_is_says_so(folder):
    with pytest.raises(StudyNotFound, match=r"no study that could be resumed\. .*\. Leave --resume out"):
        _begin(folder, mode="resume")


def _goal(**changes):
    return {"goal": Goal(**{"global_batch": 64, **changes})}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"environment": environment(device_name="Other GPU")},
            "the machine's device name was Fake GPU 16GB, is Other",
        ),
        ({"environment": environment(torch="2.14.0")}, "the machine's torch was 2.13.0, is 2.14.0"),
        ({"environment": environment(native_dtypes=())}, "native dtypes were bfloat16,float16, are none"),
        ({"goal": Goal(global_batch=128)}, "the held global batch (--global-batch) was 64, is 128"),
        (_goal(global_batch=None), "the held global batch (--global-batch) was 64, is free"),
        (_goal(limits={"num_workers": Limit(low=1)}), "--workers or --fix workers was not given, is 1:."),
        (_goal(limits={"batch_size": Limit(values=(4, 6, 12))}), "--batch or --fix batch was not given, is 4,6,12."),
        (
            _goal(limits={"channels_last": Limit(values=(True,))}),
            "--channels-last or --fix channels_last was not given, is true.",
        ),
        (_goal(tune=("batch_size", "num_workers")), "--tune was not given, is batch_size,num_workers."),
        (_goal(objective="memory"), "--objective was throughput, is memory."),
        (_goal(stability="off"), "--stability was quick, is off."),
        (_goal(exact=True), "--exact was false, is true."),
        (_goal(headroom_fraction=0.08), "--headroom was not given, is 0.08."),
        ({"baseline": config(batch_size=32)}, "the baseline's batch_size was 64, is 32"),
        ({"facts": facts(parameter_count=5)}, "the target's parameter count was 11689512, is 5"),
        ({"memory_limit_bytes": GIB}, "memory limit bytes were"),
        ({"target": "other.py"}, "the target was model.py, is other.py"),
    ],
)
def test_other_circumstances_are_refused_by_name_and_value(folder, changes, words):
    _begin(folder)

    with pytest.raises(
        StudyError,
        match=r"does not fit this search: .*\. Only results of the same machine, .*\. Use --fresh .* another --study",
    ) as caught:
        _begin(folder, study_request(**changes))

    assert words in str(caught.value)
    assert disk.read_request(folder) == REQUEST


def test_of_two_long_commands_the_message_shows_where_they_differ(folder):
    command = "-- python train.py --per_device_batch_size {batch_size=8} --grad_accum {gradient_accumulation_steps=4}"
    _begin(folder, replace(REQUEST, target=command))

    with pytest.raises(StudyError, match="--amp"):
        _begin(folder, replace(REQUEST, target=f"{command} --amp"))


def test_of_many_differences_the_first_are_told_and_the_rest_counted(folder):
    _begin(folder)
    other = study_request(target="other.py", facts=facts(parameter_count=5, name="Other"), goal=Goal(global_batch=32))

    with pytest.raises(StudyError, match=r"target was model.py, is other.py; [^;]*; [^;]*; and 1 more\. ") as caught:
        _begin(folder, other)

    assert "parameter count" not in str(caught.value)


def test_it_is_known_beforehand_whether_a_study_would_go_on(folder):
    new = check_resumable(folder, "auto")
    _begin(folder)

    assert (new, check_resumable(folder, "auto")) == (None, REQUEST)
    check_alike(folder, REQUEST, REQUEST)
    with pytest.raises(StudyError, match="does not fit this search"):
        check_alike(folder, REQUEST, study_request(target="other.py"))


def test_what_only_follows_from_an_option_is_not_told_beside_it():
    fewer = {**REQUEST.domains, "batch_size": (4, 6, 12)}
    narrowed = replace(REQUEST, goal=replace(REQUEST.goal, limits={"batch_size": Limit(values=(4, 6, 12))}))

    assert compare(REQUEST, replace(narrowed, domains=fewer)) == ["--batch or --fix batch was not given, is 4,6,12"]
    assert compare(REQUEST, replace(REQUEST, domains=fewer))[0].startswith(
        "the search of batch_size was 8,16,32,64, is 4,6,12"
    )


@pytest.mark.parametrize("noise_scale", [None, 50.0])
def test_a_study_whose_goal_held_the_noise_scale_is_still_read(folder, noise_scale):
    written = json.loads(codec.encode(REQUEST))
    written["goal"]["noise_scale"] = noise_scale
    (folder / disk.STUDY).write_text(json.dumps(written))

    assert disk.read_request(folder) == REQUEST


@pytest.mark.parametrize(
    ("goal", "options"),
    [
        ({"objective": "memory", "within_fraction": 0.1, "price_per_hour": None}, {"within": 0.1}),
        ({"objective": "memory"}, {"within": 0.05}),
        ({"objective": "cost", "within_fraction": 0.05, "price_per_hour": 2.0}, {"price": 2.0}),
        ({"objective": "throughput", "within_fraction": 0.05, "price_per_hour": None}, {}),
    ],
)
def test_options_of_objectives_that_were_fields_of_the_goal_are_still_read(folder, goal, options):
    written = json.loads(codec.encode(REQUEST))
    del written["goal"]["objective_options"]
    written["goal"] |= goal
    (folder / disk.STUDY).write_text(json.dumps(written))

    assert disk.read_request(folder).goal.objective_options == options


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        ({"objective": "memory", "objective_options": {"within": 1.0}}, "within"),
        ({"objective": "cost", "objective_options": {"price": 0.0}}, "price"),
        ({"objective": "cost", "objective_options": {"within": 0.1}}, "within"),
        ({"objective": "beauty"}, "there is no objective 'beauty'"),
    ],
)
def test_a_stored_goal_that_no_objective_can_have_is_refused(folder, goal, told):
    written = json.loads(codec.encode(REQUEST))
    written["goal"] |= goal
    (folder / disk.STUDY).write_text(json.dumps(written))

    with pytest.raises(StudyError, match=f"is not a readable StudyRequest: .*{told}"):
        disk.read_request(folder)


def test_another_option_of_the_objective_is_another_goal():
    mine, other = (
        settle(Settings.of(target="model.py", objective="memory", within=within), environment(), declared())[0]
        for within in (None, 0.1)
    )

    assert compare(mine, other) == ["--within was 0.05, is 0.1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"created_at": "2027-01-01T00:00:00+00:00"},
        {"enforced_limit_bytes": 5 * GIB},
        {"seed": 9},
        {"environment": environment(shm_bytes=1)},
    ],
)
def test_what_varies_by_itself_does_not_matter(changes):
    assert compare(REQUEST, study_request(**changes)) == []


def test_another_card_of_the_same_kind_goes_on_and_one_of_another_kind_does_not():
    here = environment(device_uuid="GPU-1", platform="Linux 6.1")
    there = replace(here, device_uuid="GPU-2", platform="Linux 6.2", host_bytes=here.host_bytes - 2**20)

    same = compare(study_request(environment=here), study_request(environment=there))
    other = compare(study_request(environment=here), study_request(environment=replace(there, device_name="other")))

    assert same == []
    assert f"the machine's device name was {here.device_name}, is other" in other


BEFORE = environment(
    device="cpu", device_name="Xeon", cuda=None, capability=None, driver=None, device_uuid=None,
    device_bytes=25_276_502_016, host_bytes=25_276_502_016, default_threads=8,
)  # fmt: skip
AFTER = replace(BEFORE, device_bytes=BEFORE.device_bytes - 16_384, host_bytes=BEFORE.host_bytes - 16_384)


@pytest.mark.parametrize(
    "settings",
    [{}, {"memory_limit": "50%"}, {"memory_limit": "8GiB"}, {"headroom": 0.08}, {"memory_limit": "33%", "headroom": 0}],
    ids=str,
)
def test_a_cpu_study_goes_on_after_a_reboot_that_left_the_kernel_another_share_of_memory(settings):
    asked = Settings(target="model.py", **settings)

    before, _ = settle(asked, BEFORE, declared())
    after, _ = settle(asked, AFTER, declared())

    assert fingerprint(BEFORE) == fingerprint(AFTER)
    assert compare(before, after) == []


def test_after_a_reboot_another_memory_limit_is_still_another_circumstance():
    before, _ = settle(Settings(target="model.py", memory_limit="50%"), BEFORE, declared())

    for other in ("51%", "11GiB", None):
        after, _ = settle(Settings(target="model.py", memory_limit=other), AFTER, declared())
        assert "memory" in compare(before, after)[0].replace("-", " ")


def test_a_request_that_went_through_json_is_the_same():
    through = codec.decode(codec.encode(REQUEST), type(REQUEST))

    assert compare(through, REQUEST) == []
    assert compare(REQUEST, replace(through, seed=1)) == []


def test_fresh_moves_the_old_study_aside_and_deletes_nothing(folder):
    _begin(folder)
    disk.new_attempt(folder, ProbeRequest)
    other = study_request(target="other.py")

    place, resumed = _begin(folder, other, "fresh")
    _begin(folder, other, "fresh")

    assert (place, resumed) == (folder, False)
    assert disk.read_request(folder).target == "other.py"
    assert not (folder / disk.PROBES).exists()
    aside = folder.with_name("study.old-1")
    assert disk.read_request(aside) == REQUEST
    assert (aside / disk.PROBES / "0000").is_dir()
    assert disk.is_study(folder.with_name("study.old-2"))


def test_fresh_gets_past_a_damaged_study(folder):
    (folder / disk.STUDY).write_text("{")

    with pytest.raises(StudyError, match=r"study\.json is not a readable"):
        _begin(folder)
    _begin(folder, mode="fresh")

    assert disk.read_request(folder) == REQUEST


def test_probes_of_which_nobody_knows_what_they_were_asked_are_not_mixed_in(folder):
    disk.new_attempt(folder, ProbeRequest)

    with pytest.raises(StudyError, match=r"holds 0 probes but no study\.json, and no inspection .*\. Use --fresh"):
        _begin(folder)
    _begin(folder, mode="fresh")

    assert not (folder / disk.PROBES).exists()
    assert (folder.with_name("study.old-1") / disk.PROBES / "0000").is_dir()


def test_a_study_that_is_being_searched_has_no_answer_yet_and_has_not_ended(folder):
    _begin(folder)
    lock = Lock(folder)

    with pytest.raises(NoRecommendation, match="It is being searched now: wait"):
        load_result(folder)
    lock.release()


def test_the_study_that_was_begun_is_locked_even_if_it_is_fresh(folder):
    _begin(folder)

    lock = Lock(folder)
    begin(folder, REQUEST, "fresh", lock)

    with pytest.raises(StudyError, match="is being searched by process"):
        Lock(folder)
    lock.release()


def _intruding(monkeypatch, folder, after):
    """Another search, which tries to lock the folder after so many renames of this one; what came of it."""
    rename, outcomes = Path.rename, []

    def renamed(path, target):
        rename(path, target)
        outcomes.append("")
        if len(outcomes) == after:
            try:
                outcomes[-1] = Lock(folder)
            except StudyError as error:
                outcomes[-1] = str(error)

    monkeypatch.setattr(Path, "rename", renamed)
    return outcomes


@pytest.mark.parametrize("after", [1, 3])
def test_no_other_search_gets_in_while_a_study_is_moved_aside(folder, monkeypatch, after):
    _begin(folder)
    disk.make(folder / disk.INSPECT)
    lock, outcomes = Lock(folder), _intruding(monkeypatch, folder, after)

    begin(folder, REQUEST, "fresh", lock)

    assert "is being searched by process" in outcomes[after - 1]
    lock.release()


def test_a_folder_that_another_search_makes_meanwhile_is_left_to_it(folder, monkeypatch):
    _begin(folder)
    disk.make(folder / disk.INSPECT)
    lock, outcomes = Lock(folder), _intruding(monkeypatch, folder, 2)

    with pytest.raises(StudyError, match=r"^Another search made .*study while .* moved to .*old-1\. .*\. Wait for"):
        begin(folder, REQUEST, "fresh", lock)

    assert disk.read_request(folder.with_name("study.old-1")) == REQUEST
    assert sorted(one.name for one in folder.parent.iterdir()) == ["study", "study.old-1"]
    lock.release()
    outcomes[1].release()


def test_a_search_whose_target_fails_leaves_the_inspection_of_the_study(folder):
    class Failing(FakeLauncher):
        def run(self, request, folder):
            result = Inspection(
                outcome=Outcome.USER_ERROR, failure=Failure(phase="load", message="boom", evidence="boom")
            )
            codec.write(folder / RESULT, result)
            return result

    _begin(folder)
    before = codec.encode(Inspection(environment=REQUEST.environment, facts=REQUEST.facts))

    with pytest.raises(TargetError, match="boom"), open_study(Settings.of(study=folder, target="model.py"), Failing()):
        pass

    assert (folder / disk.INSPECT / RESULT).read_bytes() == before


def test_a_study_of_another_target_is_refused_before_a_process_is_started(folder):
    _begin(folder)

    with (
        pytest.raises(StudyError, match=r"does not fit this search: the target was model.py, is other.py\. Only "),
        open_study(Settings.of(study=folder, target="other.py"), FakeLauncher()),
    ):
        pass

    assert not (folder / disk.INSPECT).exists()


def test_a_study_goes_on_with_a_model_that_an_earlier_version_did_not_know_to_be_compiled():
    old, new = facts(space={}), facts(space={}, compiles_model=True)
    begun = study_request(facts=old)

    assert not identity.as_begun(begun, begun.environment, new)[1].compiles_model


UPDATED = OptimizerFacts(names=("AdamW",), usual="for-loop", possible=("for-loop", "foreach", "fused"), step_share=0.02)


def test_what_an_update_took_is_another_in_each_inspection_and_the_study_goes_on(folder):
    begun = facts(optimizer=UPDATED)
    _begin(folder, replace(REQUEST, facts=begun))
    faster = replace(begun, optimizer=replace(UPDATED, step_share=0.005))

    assert _begin(folder, replace(REQUEST, facts=faster)) == (folder, True)
    assert identity.as_begun(replace(REQUEST, facts=begun), REQUEST.environment, faster)[1] == begun


def test_a_study_of_before_there_was_a_ladder_of_recomputing_goes_on_with_all_or_none():
    deep = facts(checkpointable_blocks=12)
    begun = replace(REQUEST, facts=deep, domains={**REQUEST.domains, "activation_checkpointing": (False, True)})

    machine, target = identity.as_begun(begun, REQUEST.environment, deep)

    assert build(target, machine, REQUEST.goal, REQUEST.baseline).domains["activation_checkpointing"] == (False, True)
    assert len(build(deep, machine, REQUEST.goal, REQUEST.baseline).domains["activation_checkpointing"]) == 5


def test_a_study_of_when_malloc_was_on_request_goes_on_without_it():
    free, here = facts(space={}), environment(device="cpu", capability=None, mallocs=("glibc",))
    begun = replace(REQUEST, facts=free, environment=here, domains={**REQUEST.domains, "malloc": (None,)})

    machine, target = identity.as_begun(begun, here, free)

    assert build(target, machine, REQUEST.goal, REQUEST.baseline).domains["malloc"] == (None,)
    assert build(free, machine, REQUEST.goal, REQUEST.baseline).domains["malloc"] == (None, "glibc")


def test_another_optimizer_is_another_target(folder):
    here = replace(REQUEST, environment=environment(no_compiler=""))
    _begin(folder, replace(here, facts=facts(optimizer=UPDATED)))

    with pytest.raises(StudyError, match="the target's optimizer was"):
        _begin(folder, replace(here, facts=facts(optimizer=replace(UPDATED, names=("SGD",)))))


def test_a_study_of_a_version_that_looked_at_no_optimizer_goes_on(folder):
    _begin(folder)

    newer = replace(REQUEST, facts=facts(optimizer=UPDATED, attention={"bfloat16": ("math",)}))
    assert _begin(folder, newer) == (folder, True)


def test_a_search_goes_on_whatever_an_update_took_when_it_was_looked_at_again(tmp_path):
    begun = declared()
    for share in (0.02, 0.005):
        launcher = FakeLauncher(facts=replace(begun, optimizer=replace(UPDATED, step_share=share)))
        with open_study(Settings.of(study=tmp_path / "study", target="model.py"), launcher) as study:
            assert study.space.domains["fused_optimizer"] == study.request.domains["fused_optimizer"]

    assert study.is_resumed


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_study_goes_on_where_it_was_recorded(tmp_path, monkeypatch, forking_launcher, name):
    """As its target is found today, on the machine of then."""
    monkeypatch.chdir(STUDIES.parent)
    place = shutil.copytree(STUDIES / name, tmp_path / name)
    request = disk.read_request(place)
    asked = InspectRequest(target=request.target, device=request.environment.device)
    seen = forking_launcher.run(asked, disk.make(tmp_path / "seen"))
    machine = FakeLauncher(environment=request.environment, facts=seen.facts)

    with open_study(Settings(target=request.target, study=place, mode="resume"), machine) as study:
        assert study.is_resumed


def test_a_study_goes_on_with_the_knobs_that_could_be_set_when_it_began():
    fewer, more, other = (
        facts(is_program=True, settable=settable)
        for settable in (("batch_size", "amp_dtype"), ("batch_size", "amp_dtype", "malloc"), ("batch_size", "malloc"))
    )
    begun = study_request(facts=fewer)

    assert identity.as_begun(begun, begun.environment, more)[1] == fewer
    assert identity.as_begun(begun, begun.environment, other)[1] == other
    assert compare(begun, study_request(facts=more)) == []
    assert any("settable" in one for one in compare(begun, study_request(facts=other)))


def test_a_preview_leaves_out_what_an_earlier_study_could_not_set_only_where_it_is_of_the_same_target(folder):
    of = facts(settable=("batch_size", "num_workers"), baseline={"batch_size": 64})
    same, other = "-- python train.py {batch_size=64}", "-- python train.py {batch_size=64} --workers {num_workers=0}"
    _begin(folder, replace(REQUEST, target=same, facts=replace(of, settable=("batch_size",))))

    found = {text: preview(Settings(target=text, study=folder), FakeLauncher(facts=of))[0] for text in (same, other)}

    assert found[same].facts.settable == ("batch_size",)
    assert found[other].facts.settable == ("batch_size", "num_workers")
