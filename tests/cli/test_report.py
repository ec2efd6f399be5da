from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autotune.machine.environment import fingerprint
from autotune.report.charts import CHARTS
from tests.commandline import assert_one_clear_error
from tests.commandline import run_here as run
from tests.reporting import ENVIRONMENT, ladder, recommendation, written


@pytest.fixture
def home(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "resnet", ladder()[:9], recommendation())
    return tmp_path


def test_the_page_is_written_into_the_study_and_its_place_is_told(home: Path) -> None:
    told = run(home, "report", "resnet")

    assert (told.returncode, told.stdout, told.stderr) == (0, "studies/resnet/report.html\n", "")
    page = (home / "studies" / "resnet" / "report.html").read_text()
    assert "15.3×" in page
    assert 'href="probes/0007/log.txt"' in page


def test_a_page_written_elsewhere_still_finds_the_logs(home: Path) -> None:
    (home / "public").mkdir()

    assert run(home, "report", "resnet", "-o", "public/a page.html").stdout == "public/a page.html\n"

    assert 'href="../studies/resnet/probes/0007/log.txt"' in (home / "public" / "a page.html").read_text()
    assert not (home / "studies" / "resnet" / "report.html").exists()


def test_one_chart_is_written_as_svg(home: Path) -> None:
    told = run(home, "report", "resnet", "--chart", "throughput", "-o", "curve.svg")

    assert told.stdout == "curve.svg\n"
    root = ElementTree.parse(home / "curve.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "bf16 nhwc" in "".join(root.itertext())


def test_the_help_names_every_chart(home: Path) -> None:
    told = " ".join(run(home, "report", "--help").stdout.split())

    assert ": " + ", ".join(CHARTS) + "; or card" in told


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--to", "md"), "autotune report has no option --to. It was probably mistyped. There are --output, --chart, "),
        (("-o", "report.md"), "with --markdown .md"),
        (("-o", "report.pdf"), "report.pdf would hold an HTML page"),
        (("-o", "report.png"), "with --chart .svg or .png"),
        (("--markdown", "-o", "report.html"), "report.html would hold Markdown"),
        (("--chart", "throughputs"), "--chart finalists, step, ranks, settings"),
        (("--chart", "timeline"), "settings, throughput, precision, history, card."),
        (("--chart", "throughput", "-o", "curve.gif"), "-o curve.svg"),
        (("--chart", "card", "--markdown"), "Give one of the two"),
        (("--chart", "precision"), "no paired runs were made"),
        (("-o", "studies"), "studies cannot be written"),
        (("-o", "publik/page.html"), "there is no folder publik"),
        (("-o", "/proc/page.html"), "/proc takes no new files"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(home: Path, words: tuple[str, ...], remedy: str) -> None:
    told = run(home, "report", "resnet", *words)

    assert remedy in assert_one_clear_error(told)


def test_the_comparison_of_losses_is_no_failure_where_it_went_well(tmp_path: Path) -> None:
    recorded = str(Path(__file__).parents[2] / "studies" / "digits_cnn-xeon")

    all_of_it, failures = run(tmp_path, "show", recorded), run(tmp_path, "show", recorded, "--failed")

    assert "\nbf16 loss matches fp32" in all_of_it.stdout
    assert "tracked" not in failures.stdout


def test_the_answer_is_a_comment_on_standard_output(home: Path) -> None:
    told = run(home, "report", "resnet", "--markdown")

    assert told.returncode == 0
    assert told.stdout.startswith("**ResNet trains 15.3× faster than your baseline (14.9 to 15.8)")
    assert "| amp\\_dtype | fp32 | bfloat16 | not measured |" in told.stdout
    assert not (home / "studies" / "resnet" / "report.html").exists()


def test_the_card_is_written_as_svg(home: Path) -> None:
    told = run(home, "report", "resnet", "--chart", "card")

    assert told.stdout == "studies/resnet/card.svg\n"
    assert "15.3×" in "".join(ElementTree.parse(home / "studies" / "resnet" / "card.svg").getroot().itertext())


def test_without_a_browser_png_says_what_it_needs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.report.raster.BROWSERS", ())

    told = run(home, "report", "resnet", "--chart", "card", "-o", "card.png")

    assert "Chromium" in assert_one_clear_error(told)


def test_a_study_that_was_copied_is_named_where_it_lies_now(home: Path) -> None:
    shutil.copytree(home / "studies" / "resnet", home / "copy")

    told = run(home, "best", "copy").stdout

    assert "autotune best copy --verbose" in told
    assert "studies/" not in told


@pytest.mark.parametrize(("probes", "newer"), [(7, 2), (9, 0)])
def test_probes_after_the_answer_are_told_wherever_it_is_read(tmp_path: Path, probes: int, newer: int) -> None:
    best = recommendation(probes=probes, fingerprint=fingerprint(ENVIRONMENT))
    written(tmp_path / "study", ladder()[:9], best)

    shown, answer = run(tmp_path, "show", "study"), run(tmp_path, "best", "study")

    state = f"stopped before its end, {newer} probes after its answer" if newer else "finished"
    assert f"9 probes · {state}\n" in shown.stdout
    assert answer.stderr == (
        f"The search was broken off after {newer} more probes, which this answer does not know. Run the same command "
        f"again to end it.\n" * bool(newer)
    )


def test_a_damaged_measurement_that_the_answer_does_not_need_costs_nothing(tmp_path: Path) -> None:
    written(tmp_path / "study", ladder()[:9], recommendation(probes=9, fingerprint=fingerprint(ENVIRONMENT)))
    place = tmp_path / "study" / "dry_run" / "0000"
    place.mkdir(parents=True)
    for name in ("request.json", "result.json"):
        (place / name).write_text("damaged")

    assert run(tmp_path, "best", "study").returncode == run(tmp_path, "show", "study").returncode == 0


def test_a_finished_study_without_probes_is_said_to_have_lost_them(home: Path) -> None:
    answer = recommendation(fingerprint=fingerprint(ENVIRONMENT), probes=9)
    written(home / "studies" / "lost", (), answer)

    told = run(home, "show", "lost")

    assert told.returncode == 0
    assert "0 probes · finished, its probes are gone" in told.stdout
    assert "The answer rests on 9 probes, of which none is left" in told.stdout
    assert "no probes yet" not in told.stdout
