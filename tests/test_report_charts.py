from __future__ import annotations

import itertools
from xml.etree import ElementTree

import pytest

from autotune.report.charts import LABEL_HEIGHT, memory_chart, throughput_chart
from autotune.report.curves import curves
from autotune.results import Outcome
from tests.reporting import config, failed, ladder, measured, recommendation, trial, view

SPACE = "{http://www.w3.org/2000/svg}"


def texts(svg: str, kind: str) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(svg).iter(f"{SPACE}text") if node.get("class") == kind]


def test_each_arm_is_the_best_probe_at_each_batch() -> None:
    trials = (
        trial(0, config(64, num_workers=0), measured(100)),
        trial(1, config(64, num_workers=8), measured(300)),
        trial(2, config(64, amp_dtype="bfloat16"), measured(500)),
    )

    found = curves(view(trials))

    assert [(curve.label, [point.number for point in curve.points]) for curve in found] == [
        ("bf16", [2]),
        ("fp32", [1]),
    ]


def test_memory_runs_out_at_the_smallest_batch_above_all_that_ran() -> None:
    trials = (
        trial(0, config(64), measured(100)),
        trial(1, config(512), failed()),
        trial(2, config(256), failed()),
        trial(3, config(32), failed(Outcome.OOM_HOST)),
        trial(4, config(128), failed(Outcome.CRASHED)),
    )

    assert [curve.exhausted_batch for curve in curves(view(trials))] == [256]


@pytest.mark.parametrize("chart", [throughput_chart, memory_chart])
def test_charts_say_in_words_what_they_show(chart: object) -> None:
    assert callable(chart)
    root = ElementTree.fromstring(chart(view(ladder(), recommendation())))

    assert root.get("role") == "img"
    assert "against micro-batch" in str(root.get("aria-label"))
    titles = [node.text or "" for node in root.iter(f"{SPACE}title")]
    assert any("bf16 nhwc, micro-batch 1,024" in title for title in titles)
    assert any("out of memory at 2,048" in title for title in titles)


def test_throughput_rings_the_recommended_point_and_marks_the_baseline() -> None:
    svg = throughput_chart(view(ladder(), recommendation()))

    root = ElementTree.fromstring(svg)
    assert len([node for node in root.iter(f"{SPACE}circle") if node.get("class") == "ring"]) == 1
    assert [node.text for node in texts(svg, "note")] == ["baseline"]
    assert [node.text for node in texts(svg, "good")] == ["recommended"]
    assert {node.text for node in texts(svg, "axis")} == {"samples/s", "micro-batch, samples (log scale)"}


def test_memory_shows_the_limit_and_what_may_be_used_of_it() -> None:
    svg = memory_chart(view(ladder()))

    assert [node.text for node in texts(svg, "danger")] == ["limit 80 GiB", "usable 76 GiB"]


def test_a_limit_far_above_every_peak_does_not_flatten_the_curves() -> None:
    svg = memory_chart(view((trial(0, config(), measured(100, 2**30)),)))

    assert "far above this chart" in svg
    assert max(float(str(node.text)) for node in texts(svg, "tick")[:-1]) < 3


def test_names_of_close_curves_do_not_overlap() -> None:
    arms = itertools.product((None, "bfloat16", "float16"), (False, True))
    trials = tuple(
        trial(number, config(64, amp_dtype=amp, channels_last=layout), measured(100 + number))
        for number, (amp, layout) in enumerate(arms)
    )

    heights = sorted(float(str(node.get("y"))) for node in texts(throughput_chart(view(trials)), "name"))

    assert len(heights) == 6
    assert all(after - before >= LABEL_HEIGHT - 0.1 for before, after in itertools.pairwise(heights))
    assert heights[-1] < 340


def test_curves_differ_in_shape_as_well_as_in_colour() -> None:
    root = ElementTree.fromstring(throughput_chart(view(ladder())))

    shapes = {}
    for group in root.iter(f"{SPACE}g"):
        if "arm" in str(group.get("class")).split():
            dot = next(node for node in group.iter() if node.get("class") == "dot")
            shapes[group.get("class")] = (dot.tag, dot.get("d"))
    assert len(shapes) == 4
    assert len(set(shapes.values())) == 4


@pytest.mark.parametrize(
    "trials",
    [(), (trial(0, config(), failed()),), (trial(0, config(), failed(Outcome.CRASHED)),)],
)
def test_without_a_measurement_there_is_no_chart(trials: tuple[object, ...]) -> None:
    study = view(trials)  # type: ignore[arg-type]  # parametrized

    assert throughput_chart(study) == ""
    assert memory_chart(study) == ""
