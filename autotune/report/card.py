"""The answer as a picture: the bar of its interval, and a card to paste into a pull request or a chat."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.harmless import cropped, markup
from autotune.report import drawing, phrases
from autotune.report.answer import consequences, flow, sentences
from autotune.report.certainty import certainty
from autotune.report.change_rows import ChangeRow, change_rows, unchanged_values
from autotune.report.chart import CHART_STYLE
from autotune.report.durations import durations
from autotune.report.losses import losses_phrase
from autotune.sentences import capitalized
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.units import counted, format_end, range_phrase

WIDTH, HEIGHT, EDGE = 1200, 630, 64  # pixels; what chats and pull requests show of a link
BAR_WIDTH, BAR_HEIGHT = 300, 52
ROW, FOOT = 40, 32  # pixels of a change, and of a line at the foot
WIDEST_LINE, WIDEST_CONSEQUENCE, WIDEST_FOOT = 50, 78, 86  # characters
MOST_HEADLINE_LINES = 3  # of the headline
CARD_STYLE = """
text.name { font-size: 30px; fill: var(--soft); } text.factor { font-size: 116px; font-weight: 700; fill: var(--good); }
text.plainly { fill: var(--ink); } text.line { font-size: 32px; font-weight: 600; }
text.row { font-size: 27px; } text.worth { font-size: 25px; fill: var(--soft); }
text.foot { font-size: 23px; fill: var(--soft); }
svg svg text { font-size: 12px; }
"""


def interval_bar(best: Recommendation) -> str:
    """Return the 95% interval of the speed-up as a small drawing, with the baseline at 1; empty without an interval."""
    low, high, factor = best.speedup_low, best.speedup_high, best.speedup
    if not phrases.interval(best) or low is None or high is None or factor is None or best.params == best.baseline:
        return ""
    if phrases.achieved(best):  # the number beside it is no speed-up
        return ""
    first, last = min(1.0, low), max(1.0, high)
    room = (last - first) or 1.0

    def x(value: float) -> float:
        return 26 + (value - first) / room * (BAR_WIDTH - 52)

    parts = [f'<path class="baseline" d="M{x(1):.1f} 16V36" stroke-dasharray="3 3"/>']
    parts += [drawing.bar("spread", x(low), 21, x(high) - x(low), 10), drawing.bar("mean", x(factor) - 2, 17, 4, 18)]
    ends = [(low, f"{format_end(low)}×", 49), (high, f"{format_end(high)}×", 49)]
    if x(high) - x(low) < 48:
        ends = [((low + high) / 2, f"{range_phrase(low, high)}×", 49)]
    for end, name, y in [*ends, (1.0, "1×", 11)]:
        half = 0.6 * drawing.width_of(name)
        parts.append(drawing.text(min(max(x(end), half), BAR_WIDTH - half), y, name, "tick", "middle"))
    label = f"95% interval of the speed-up: {phrases.interval(best)}; the baseline is at 1"
    kind = "kept" if phrases.is_faster(best) else "other"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" role="img" aria-label="{markup(label)}" '
    return f'{head}viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}"><g class="{kind}">{"".join(parts)}</g></svg>'


def card(view: StudyView, best: Recommendation) -> str:
    """Return the card as an SVG file: factor, interval, what changes, and the numbers behind it."""
    factor, rest = phrases.split_headline(best)
    lines, y, feet = [], 66, _feet(view, best)
    lines.append(_text("name", y, f"{best.model} on {phrases.device(best.environment)}", 62))
    if factor:
        y += 120
        lines.append(_text("factor" + " plainly" * (best.global_batch_change is not None), y, factor, 12))
        bar = interval_bar(best).replace(
            "<svg ", f'<svg x="{WIDTH - EDGE - 480}" y="{y - 84}" width="480" height="83" ', 1
        )
        lines.append(bar)
    y += 12
    for line in flow((rest if factor else capitalized(rest)).split(), WIDEST_LINE)[:MOST_HEADLINE_LINES]:
        y += 44
        lines.append(_text("line", y, line, WIDEST_LINE))
    y += 4
    for line in flow(" ".join(consequences(best, view)[:1]).split(), WIDEST_CONSEQUENCE):
        y += 34
        lines.append(_text("worth", y, line, WIDEST_CONSEQUENCE))
    top = HEIGHT - 40 - FOOT * (len(feet) - 1)
    rows = change_rows(best, view)
    stays = _text("worth", y + 46, unchanged_values(best, view), WIDEST_CONSEQUENCE)
    lines += _rows(rows, y + 46, top - 36) if rows else [stays]
    lines += [_text("foot", top + FOOT * row, line, WIDEST_FOOT) for row, line in enumerate(feet)]
    body = f'<style>{CHART_STYLE}{CARD_STYLE}</style><rect class="paper" width="100%" height="100%"/>{"".join(lines)}'
    told = markup(" ".join(sentences(best)))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{told}" {size}>{body}</svg>\n'


def _feet(view: StudyView, best: Recommendation) -> list[str]:
    """Return certainty, speed and memory; of the latter two as much as fits on a line."""
    sure, times = certainty(best), durations(best, facts_of(best, view)).split(" · ")
    return [
        *([f"{sure.word}: {sure.why}"] if sure else []),
        flow([phrases.rate_phrase(best), *times], WIDEST_FOOT, " · ")[0],
        flow([phrases.memory_phrase(best), losses_phrase(best)], WIDEST_FOOT, " · ")[0],
    ]


def _rows(rows: Sequence[ChangeRow], y: float, last: float) -> Sequence[str]:
    """Return the changes and their gains; the number of further changes if not all fit above `last`."""
    parts, room = [], int((last - y) / ROW) + 1
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    for number, row in enumerate(shown):
        place = y + ROW * number
        parts.append(_text("row", place, f"{row.name}   {row.today} → {row.tuned}", 40))
        parts.append(_text("worth", place, row.worth, 46, WIDTH - EDGE, "end"))
    if len(shown) < len(rows):
        parts.append(_text("worth", y + ROW * len(shown), f"and {counted(len(rows) - len(shown), 'change')} more", 46))
    return parts


def _text(kind: str, y: float, content: str, most: int, x: float = EDGE, anchor: str = "start") -> str:
    return drawing.text(x, y, cropped(content, most), kind, anchor)
