"""The expectation of the sampler for a probe: in one line, and compared with what the probe measured."""

from __future__ import annotations

from rich.text import Text

from autotune.core.results import Trial
from autotune.report import phrases
from autotune.sampler.prediction import Prediction
from autotune.study import disk
from autotune.study.shown import shown_config
from autotune.study.view import StudyView
from autotune.units import format_bytes, format_rate, format_share

LEAST_SHOWN_GAIN = 0.005  # smaller ones round to nothing
LEAST_SHOWN_DEVIATION = 0.0005  # smaller ones round to 0.0%
LABEL_WIDTH = 10  # of the words before the colon's place


def expectation(predicted: Prediction) -> str:
    """Return `expected 3,400 samples/s (2,900 to 4,000), 310 MiB, fits 98%: the best expected gain (12%)`."""
    rate, low, high = (format_rate(number) for number in (predicted.samples_per_second, predicted.low, predicted.high))
    memory = f"{format_share(predicted.memory_share)} of the memory" if predicted.memory_bytes is None else ""
    memory = memory or format_bytes(predicted.memory_bytes)
    return (
        f"expected {rate} samples/s ({low} to {high}), {memory}, fits {format_share(predicted.fits)}: {why(predicted)}"
    )


def why(predicted: Prediction) -> str:
    """Return in words why this configuration was proposed."""
    gain = "" if predicted.gain is None or predicted.gain < LEAST_SHOWN_GAIN else f" ({format_share(predicted.gain)})"
    if predicted.why == "direct":
        return f"the model is off by more than 15% here, so batches near the best one are tried directly{gain}"
    if predicted.gain is None:
        return "expected to be the fastest"
    if not gain:
        return "hardly any gain is expected"
    return f"the best expected gain{gain}"


def prediction_of(view: StudyView, trial: Trial) -> Prediction | None:
    """Return the sampler's prediction for a probe, if there is one. Raises `StudyError` if the file is damaged."""
    return disk.read_prediction(view.folder, trial.number)


def deviation(predicted: Prediction, trial: Trial) -> str:
    """Return `12% faster than expected, within the interval; memory 3% below`; empty if nothing was measured."""
    measured = trial.result.measurement
    if measured is None:
        return "expected to run, and did not" if predicted.fits > 0.5 else ""
    rate = measured.samples_per_second
    within = "within" if predicted.low <= rate <= predicted.high else "outside"
    faster, slower = (f"{word} than expected" for word in ("faster", "slower"))
    text = f"{_off(rate / predicted.samples_per_second, faster, slower, 'as fast as expected')}, {within} the interval"
    if predicted.memory_bytes:
        text += f"; memory {_off(measured.memory.bytes / predicted.memory_bytes, 'above', 'below', 'as expected')}"
    return text


def probe_block(view: StudyView, trial: Trial) -> Text:
    """Return one probe for `autotune show --probe`: prediction, measurement, and why it was made."""
    verdict, measured = view.verdict(trial), trial.result.measurement
    name = shown_config(trial.config.values, view.knobs)
    block = Text().append(f"probe {trial.number} · {phrases.purpose_word(trial.purpose)} · {name}\n", "bold")
    shown = phrases.reason(verdict) or phrases.outcome_word(trial, verdict)
    if measured is not None:
        spread = phrases.half_width(measured.relative_half_width)
        rate = phrases.samples_per_second(measured.samples_per_second)
        shown = f"{rate} ± {spread}, {format_bytes(measured.memory.bytes)}: {shown}"
    predicted = prediction_of(view, trial)
    lines = [("measured", shown), ("log", str(disk.log_of(view.folder, trial.number)))]
    if measured is not None:
        lines.insert(1, ("watching", phrases.watching(measured)))
    if predicted is not None:
        expected = expectation(predicted).removeprefix("expected ")
        lines = [("expected", expected), lines[0], ("came out", deviation(predicted, trial)), *lines[1:]]
    for name, text in lines:
        if text:
            block.append(f"{name.ljust(LABEL_WIDTH)}{phrases.plain(text)}\n")
    block.rstrip()
    return block


def _off(factor: float, more: str, less: str, alike: str) -> str:
    """Return `12% faster than expected`; `alike` for a difference that is none in the digits shown."""
    off = abs(factor - 1)
    return alike if off < LEAST_SHOWN_DEVIATION else f"{format_share(off)} {more if factor > 1 else less}"
