"""The answer as a picture: the bar of its interval, and a card to paste into a pull request or a chat."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.harmless import cropped, markup
from autotune.report import drawing, phrases
from autotune.report.answer import consequences, sentences
from autotune.report.certainty import certainty
from autotune.report.change_rows import change_rows
from autotune.report.chart import CHART_STYLE
from autotune.report.durations import durations
from autotune.report.losses import losses_phrase
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.units import format_speedup

WIDTH, HEIGHT, EDGE = 1200, 630, 64  # pixels; what chats and pull requests show of a link
BAR_WIDTH, BAR_HEIGHT = 300, 40
MOST_ROWS = 5
CARD_STYLE = """
text.name { font-size: 30px; fill: var(--soft); } text.factor { font-size: 116px; font-weight: 700; fill: var(--good); }
text.plainly { fill: var(--ink); } text.line { font-size: 32px; font-weight: 600; }
text.row { font-size: 27px; } text.worth, text.foot { font-size: 25px; fill: var(--soft); }
svg svg text { font-size: 12px; }
"""


def interval_bar(best: Recommendation) -> str:
    """Return the 95% interval of the speed-up as a small drawing, against the baseline at 1; empty without one."""
    low, high, factor = best.speedup_low, best.speedup_high, best.speedup
    if not phrases.interval(best) or low is None or high is None or factor is None or best.params == best.baseline:
        return ""
    first, last = min(1.0, low), max(1.0, high)
    room = (last - first) or 1.0

    def x(value: float) -> float:
        return 26 + (value - first) / room * (BAR_WIDTH - 52)

    parts = [f'<path class="baseline" d="M{x(1):.1f} 4V24" stroke-dasharray="3 3"/>']
    parts += [drawing.bar("spread", x(low), 9, x(high) - x(low), 10), drawing.bar("mean", x(factor) - 2, 5, 4, 18)]
    ends = [(low, f"{format_speedup(low)}×"), (high, f"{format_speedup(high)}×")]
    if all(abs(x(1) - x(end)) > 70 for end, _ in ends):
        ends.append((1.0, "1×"))
    if x(high) - x(low) < 48:
        ends[:2] = [((low + high) / 2, f"{format_speedup(low)} to {format_speedup(high)}×")]
    for end, name in ends:
        half = 0.6 * drawing.width_of(name)
        parts.append(drawing.text(min(max(x(end), half), BAR_WIDTH - half), 37, name, "tick", "middle"))
    label = f"95% interval of the speed-up: {phrases.interval(best)}; the baseline is at 1"
    kind = "kept" if phrases.is_faster(best) else "other"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" role="img" aria-label="{markup(label)}" '
    return f'{head}viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}"><g class="{kind}">{"".join(parts)}</g></svg>'


def card(view: StudyView, best: Recommendation) -> str:
    """Return the card as an SVG file: factor, interval, what changes, and the numbers behind it."""
    factor, rest = phrases.split_headline(best)
    lines, y = [], 82
    lines.append(_text("name", y, f"{best.model} on {best.environment.device_name}", 62))
    if factor:
        y += 134
        lines.append(_text("factor" + " plainly" * (best.global_batch_change is not None), y, factor, 12))
        bar = interval_bar(best).replace(
            "<svg ", f'<svg x="{WIDTH - EDGE - 480}" y="{y - 74}" width="480" height="64" ', 1
        )
        lines.append(bar)
    y += 66
    lines.append(_text("line", y, rest if factor else rest[0].upper() + rest[1:], 60))
    for sentence in consequences(best, view)[:1]:
        y += 44
        lines.append(_text("worth", y, sentence, 84))
    lines += _rows(view, best, y + 62)
    sure = certainty(best)
    speed = f"{phrases.rate_phrase(best)} · {durations(best, facts_of(best, view))}"
    lines.append(_text("foot", HEIGHT - 78, f"{sure.word}: {sure.why}" if sure else losses_phrase(best), 84))
    lines.append(_text("foot", HEIGHT - 40, f"{speed} · {phrases.memory_phrase(best)}", 84))
    body = f'<style>{CHART_STYLE}{CARD_STYLE}</style><rect class="paper" width="100%" height="100%"/>{"".join(lines)}'
    told = markup(" ".join(sentences(best)))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{told}" {size}>{body}</svg>\n'


def _rows(view: StudyView, best: Recommendation, y: float) -> Sequence[str]:
    parts = []
    for number, row in enumerate(change_rows(best, view)[:MOST_ROWS]):
        place = y + 44 * number
        parts.append(_text("row", place, f"{row.name}   {row.today} → {row.tuned}", 40))
        parts.append(_text("worth", place, row.worth, 46, WIDTH - EDGE, "end"))
    return parts


def _text(kind: str, y: float, content: str, most: int, x: float = EDGE, anchor: str = "start") -> str:
    return drawing.text(x, y, cropped(content, most), kind, anchor)
