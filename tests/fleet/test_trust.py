"""What a worker takes from the database: no code, no command, no other target, no other class of machine."""

import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from autotune.core import codec
from autotune.core.records import Config
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.errors import AutotuneError, StudyError, UsageError
from autotune.fleet.address import checked_address, printable_address
from autotune.fleet.database import Database
from autotune.fleet.records import QueuedStudy
from autotune.fleet.trust import accepted, check_class, class_of, own_target
from autotune.profile.records import ProfileRequest
from autotune.targets.source import digest_of
from autotune.testing.launcher_contract import example
from tests.worlds import environment

HERE = environment()


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> QueuedStudy:
    """A working folder with a target, and the study that trains it."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("def model(): ...\n")
    return QueuedStudy(name="study", target="model.py", target_digest=digest_of("model.py"))


def request_for(study, kind=ProbeRequest, **fields):
    return codec.encode(example(kind, study.target, **fields)).decode()


def test_the_file_of_the_search_is_found_in_the_working_folder(checkout):
    assert own_target(checkout, None) == "model.py"


def test_a_target_that_was_named_here_may_lie_elsewhere(checkout):
    Path("code").mkdir()
    Path("model.py").rename("code/model.py")

    assert own_target(checkout, "code/model.py") == "code/model.py"


def test_a_file_that_differs_is_refused(checkout):
    Path("model.py").write_text("def model(): return 1\n")

    with pytest.raises(StudyError, match="their digests differ"):
        own_target(checkout, None)


@pytest.mark.parametrize("target", ["model.py", "-- python model.py"])
def test_a_file_that_imports_other_code_than_where_the_search_runs_is_refused(checkout, target):
    Path("model.py").write_text("import net\n")
    Path("net.py").write_text("WIDTH = 1\n")
    study = msgspec.structs.replace(checkout, target=target, target_digest=digest_of(target))

    assert own_target(study, target) == target
    Path("net.py").write_text("WIDTH = 2\n")
    with pytest.raises(StudyError, match=r"model\.py imports other code here \(net\) than where the study study is"):
        own_target(study, target)


def test_a_worker_that_does_not_find_what_the_search_imports_is_told_that_it_did_not_change(checkout, monkeypatch):
    Path("scripts").mkdir()
    Path("scripts/model.py").write_text("import net\n")
    Path("net.py").write_text("WIDTH = 1\n")
    with monkeypatch.context() as there:
        there.setattr(sys, "path", [sys.path[0], str(Path.cwd()), *sys.path[1:]])
        study = msgspec.structs.replace(checkout, target_digest=digest_of("scripts/model.py"))
        assert own_target(study, "scripts/model.py") == "scripts/model.py"

    with pytest.raises(StudyError, match=r"are not found from this folder, .*: net\. PYTHONPATH") as refused:
        own_target(study, "scripts/model.py")

    assert "changed" not in str(refused.value)


def test_the_digest_of_a_search_of_an_earlier_version_is_that_of_the_file_alone(checkout):
    text = "import net\n"
    Path("model.py").write_text(text)
    Path("net.py").write_text("WIDTH = 1\n")
    study = msgspec.structs.replace(checkout, target_digest=sha256(text.encode()).hexdigest())

    assert own_target(study, None) == "model.py"
    Path("model.py").write_text(f"{text}# changed\n")
    with pytest.raises(StudyError, match="is another file here"):
        own_target(study, None)


@pytest.mark.parametrize("target", ["-- python model.py", "os.path", "/etc/passwd.py", "../model.py"])
def test_nothing_else_that_the_database_names_is_run(checkout, target):
    study = msgspec.structs.replace(checkout, target=target)

    with pytest.raises(AutotuneError, match=r"no file in this folder|[Tt]here is no|does not exist"):
        own_target(study, None)


def test_a_worker_in_another_folder_is_told_what_the_study_trains(checkout):
    Path("model.py").unlink()

    with pytest.raises(StudyError, match=r"The study study trains model\.py, which is no file in this folder"):
        own_target(checkout, None)


def test_a_link_out_of_the_working_folder_is_no_file_in_it(checkout, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "model.py"
    Path("model.py").rename(outside)
    Path("model.py").symlink_to(outside)

    with pytest.raises(StudyError, match="no file in this folder"):
        own_target(checkout, None)


def test_a_command_must_be_the_same_here(checkout):
    study = QueuedStudy(name="study", target="-- python train.py --lr 1", target_digest="")

    assert own_target(study, "-- python train.py --lr 1") == "-- python train.py --lr 1"
    with pytest.raises(StudyError, match="A command is not taken from the database"):
        own_target(study, "-- python train.py --lr 2")


def test_a_command_may_name_its_file_by_another_path_here(checkout):
    there, here = "-- python code/model.py --lr 1", f"-- python {Path('model.py').resolve()} --lr 1"
    study = msgspec.structs.replace(checkout, target=there)

    assert own_target(study, here) == here
    Path("model.py").write_text("def model(): return 1\n")
    with pytest.raises(StudyError, match="A command is not taken from the database"):
        own_target(study, here)


def test_a_request_is_run_with_the_target_and_the_device_of_here(checkout):
    there = request_for(checkout, device="cuda:1", device_uuid="GPU-there")

    request = accepted(there, checkout, "code/model.py", HERE)

    assert (request.target, request.device, request.device_uuid) == ("code/model.py", HERE.device, HERE.device_uuid)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"request": "shell", "command": "rm"}', "null", "\x00"],
)
def test_what_is_no_request_is_refused(checkout, text):
    with pytest.raises(StudyError, match="asks for what a search does not ask"):
        accepted(text, checkout, "model.py", HERE)


def test_a_request_with_a_field_too_many_is_refused(checkout):
    text = request_for(checkout).replace('"target"', '"run_this": "rm", "target"', 1)

    with pytest.raises(StudyError, match="run_this"):
        accepted(text, checkout, "model.py", HERE)


def test_a_request_for_another_target_is_refused(checkout):
    with pytest.raises(StudyError, match="other"):
        accepted(codec.encode(InspectRequest(target="other.py")).decode(), checkout, "model.py", HERE)


def test_a_request_that_would_write_elsewhere_is_refused(checkout):
    with pytest.raises(StudyError, match="/root"):
        accepted(request_for(checkout, ProfileRequest, output="/root"), checkout, "model.py", HERE)


def test_a_value_that_no_knob_has_is_refused(checkout):
    wrong = Config(values={"batch_size": 8, "gradient_accumulation_steps": 1, "malloc": "evil.so"})

    with pytest.raises(StudyError, match="malloc"):
        accepted(request_for(checkout, config=wrong), checkout, "model.py", HERE)


def test_another_class_of_machine_is_told_what_differs(checkout):
    study = msgspec.structs.replace(checkout, environment=HERE)
    other = msgspec.structs.replace(HERE, device_name="NVIDIA A100", usable_cores=HERE.usable_cores + 4)

    with pytest.raises(StudyError, match=r"device name was .*, is NVIDIA A100; the machine's usable cores"):
        check_class(study, other)


def test_another_card_of_the_class_is_welcome(checkout):
    study = msgspec.structs.replace(checkout, environment=HERE)

    check_class(study, msgspec.structs.replace(HERE, device_uuid="GPU-other", host_bytes=HERE.host_bytes + 2**30))
    check_class(checkout, HERE)  # the class is not known yet


@pytest.mark.parametrize("changes", [{"ranks": 2}, {"target": "-- torchrun --nproc-per-node 2 train.py"}])
def test_the_threads_of_ranks_are_given_to_them_and_are_no_class_of_machine(checkout, changes):
    of_a_rank = msgspec.structs.replace(HERE, default_threads=1, nccl=("NCCL_DEBUG=INFO",))
    here = msgspec.structs.replace(HERE, default_threads=8)
    known = class_of(msgspec.structs.replace(checkout, **changes), of_a_rank)

    check_class(msgspec.structs.replace(checkout, environment=known), here)
    with pytest.raises(StudyError, match="default threads were 1, are 8"):
        check_class(msgspec.structs.replace(checkout, environment=class_of(checkout, of_a_rank)), here)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"variables": ("LD_PRELOAD",)}, "the machine's variables of allocators were none, are LD_PRELOAD"),
        ({"mallocs": ()}, "the machine's mallocs were glibc, are none"),
    ],
)
def test_a_worker_with_another_allocator_is_of_another_class(checkout, changes, told):
    begun = msgspec.structs.replace(HERE, mallocs=("glibc",), variables=())
    study = msgspec.structs.replace(checkout, environment=begun)

    check_class(study, msgspec.structs.replace(begun, mallocs=("glibc", "tcmalloc")))
    with pytest.raises(StudyError, match=told):
        check_class(study, msgspec.structs.replace(begun, **changes))


def test_a_password_is_never_shown():
    assert printable_address("postgresql://me:secret@db:5432/tune?password=secret") == "postgresql://me@db:5432/tune"
    assert "secret" not in printable_address("postgresql://me:secret@[db/tune")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se%cret@127.0.0.1:1/tune",
        "postgresql://me@127.0.0.1:1/tune?password=se%cret",
        "postgresql://me:12/cret@127.0.0.1:1/tune",
        "postgresql://me:12#cret@127.0.0.1:1/tune",
        "postgresql://me:12?cret@127.0.0.1:1/tune",
        "postgresql://me:12@cret@127.0.0.1:1/tune",
        "postgresql://me:12@cret@db.example.org:1/tune",
    ],
)
def test_a_password_that_is_not_encoded_is_not_repeated(url, monkeypatch):
    monkeypatch.setattr("autotune.fleet.database.FIRST_PATIENCE_SECONDS", 0.0)
    with pytest.raises(UsageError, match="percent-encoded") as found:
        Database(url, patience_seconds=0).run(lambda cursor: None)

    assert "cret" not in str(found.value) and "12" not in str(found.value)


@pytest.mark.parametrize("parameters", ["sslmod=require", "password=12&cret"])
def test_parameters_that_are_none_are_told_without_repeating_them(parameters):
    with pytest.raises(UsageError, match=r"The parameters of --storage .*sslmode=verify-full") as found:
        Database(f"postgresql://me@127.0.0.1:1/tune?{parameters}", patience_seconds=0).run(lambda cursor: None)

    assert "cret" not in str(found.value) and "12&" not in str(found.value)


@pytest.mark.parametrize("url", ["sqlite:///x", "sqlite+pysqlite:////shared/x.db"])
def test_the_address_of_a_file_is_answered_with_what_one_machine_and_several_need(url):
    with pytest.raises(UsageError, match=r"A search on one machine needs no --storage.*several.*PostgreSQL"):
        checked_address(url)


@pytest.mark.parametrize("url", ["mysql://me:secret@db/tune", "me:secret@db", "postgresql://me:secret@db:port/tune"])
def test_an_address_that_is_none_is_refused_without_repeating_it(url):
    with pytest.raises(UsageError, match="no address of a PostgreSQL database") as found:
        checked_address(url)

    assert "secret" not in str(found.value)
