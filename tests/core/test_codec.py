import os

import msgspec
import pytest

from autotune.core import codec
from autotune.core.measurements import decode
from autotune.core.records import Config, Goal, TargetFacts
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Failure, Measurement, MemoryPeak, Outcome, ProbeResult
from autotune.errors import StudyError
from autotune.gradient_noise.records import NoiseScale
from autotune.study.recommendation import BatchAdvice, Recommendation
from tests import reporting

CONFIG = Config(values={"batch_size": 8, "gradient_accumulation_steps": 2, "amp_dtype": None, "channels_last": True})


def test_a_request_comes_back_as_it_was():
    request = ProbeRequest(target="model.py", config=CONFIG, device="cpu", memory_limit_bytes=10)

    assert decode(codec.encode(request)) == request


def test_the_two_requests_are_told_apart():
    request = InspectRequest(target="model.py")

    assert isinstance(decode(codec.encode(request)), InspectRequest)


def test_a_loss_that_is_not_finite_is_null():
    measurement = Measurement(
        samples=(8,), step_seconds=(0.5,), loader_wait_seconds=(0.1,), losses=(1.0, None), warmup_seconds=(),
        memory=MemoryPeak(process_bytes=1),
    )  # fmt: skip

    data = codec.encode(measurement)

    assert b"null" in data
    assert codec.decode(data, Measurement) == measurement


def test_an_unknown_field_is_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        codec.decode(b'{"values": {}, "extra": 1}', Config)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00\xff", b'{"values": 3}', b"[]", b'{"values": {"a\xff": 1}}', b"[" * 9999]
)
def test_a_damaged_file_is_a_study_error_that_names_it(tmp_path, content):
    path = tmp_path / "study.json"
    path.write_bytes(content)

    with pytest.raises(StudyError, match=r"study\.json"):
        codec.read(path, Config)


@pytest.mark.parametrize("read", [lambda data: codec.decode(data, ProbeRequest), decode], ids=["one", "any"])
def test_what_an_earlier_version_wrote_and_nobody_read_is_left_out(read):
    request = ProbeRequest(target="model.py", config=CONFIG, device="cpu")
    older = {**msgspec.to_builtins(request), "world_size": 1}

    assert read(msgspec.json.encode(older)) == request
    with pytest.raises(msgspec.ValidationError, match="unknown field `other`"):
        read(msgspec.json.encode({**older, "other": 1}))


@pytest.mark.parametrize("read", [lambda data: codec.decode(data, ProbeRequest), decode], ids=["one", "any"])
def test_the_purpose_that_an_earlier_version_called_worth_is_read_as_ablation(read):
    request = ProbeRequest(target="model.py", config=CONFIG, device="cpu", purpose="ablation")

    assert read(msgspec.json.encode({**msgspec.to_builtins(request), "purpose": "worth"})) == request


def test_lines_of_check_have_the_name_that_files_always_gave_them():
    written = codec.encode(reporting.FACTS)

    assert [line["name"] for line in msgspec.json.decode(written)["findings"]] == ["model", "loss"]
    assert codec.decode(written, TargetFacts) == reporting.FACTS


def test_a_former_field_of_a_record_within_is_left_out_too():
    best = reporting.recommendation(
        batch_advice=BatchAdvice(
            noise=NoiseScale(phi=20.0, low=10.0, high=40.0, steps=30, has_fallen=True, samples=512),
            half_batch=8.0, low=9.0, high=20.0,
        )
    )  # fmt: skip
    older = msgspec.to_builtins(best)
    older["batch_advice"]["check"] = {"verdict": "agrees", "samples": 4096}

    assert codec.decode(msgspec.json.encode(older), Recommendation) == best
    older["batch_advice"]["other"] = 1
    with pytest.raises(msgspec.ValidationError, match="unknown field `other`"):
        codec.decode(msgspec.json.encode(older), Recommendation)


def test_a_record_nested_without_end_is_damaged_too(tmp_path):
    (tmp_path / "request.json").write_bytes(b"[" * 9999)

    with pytest.raises(StudyError, match=r"request\.json"):
        codec.read(tmp_path / "request.json", ProbeRequest)


def test_another_protocol_is_refused(tmp_path):
    path = tmp_path / "request.json"
    codec.write(path, ProbeRequest(protocol=99, target="model.py", config=CONFIG, device="cpu"))

    with pytest.raises(StudyError, match="protocol 99"):
        codec.read(path, ProbeRequest)


def test_writing_leaves_nothing_but_the_file(tmp_path):
    codec.write(tmp_path / "a.json", CONFIG)

    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_configurations_are_equal_by_value_and_hash_alike():
    same = Config(values=dict(reversed(CONFIG.values.items())))

    assert same == CONFIG
    assert len({same, CONFIG}) == 1
    assert CONFIG.global_batch_size() == 16


def test_a_result_is_ok_exactly_if_it_has_a_measurement():
    with pytest.raises(ValueError, match="does not fit"):
        ProbeResult(outcome=Outcome.OK)
    with pytest.raises(ValueError, match="does not fit"):
        ProbeResult(outcome=Outcome.CRASHED)

    failure = Failure(phase="load", message="m", evidence="e")
    assert ProbeResult(outcome=Outcome.CRASHED, failure=failure).failure == failure


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("headroom_fraction", 1.0),
        ("headroom_fraction", -0.1),
        ("loss_tolerance", 1.0),
        ("global_batch", 0),
    ],
)
def test_a_stored_goal_is_refused_if_it_is_out_of_bounds(field, value):
    with pytest.raises(msgspec.ValidationError, match=field):
        codec.decode(msgspec.json.encode({field: value}), Goal)


def test_a_record_goes_into_a_pipe_and_does_not_take_its_place(tmp_path):
    pipe, request = tmp_path / "pipe", InspectRequest(target="model.py")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    codec.write(pipe, request)

    assert pipe.is_fifo()
    assert decode(os.read(reader, 2**16)) == request
    os.close(reader)
