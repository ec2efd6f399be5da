"""The result of `autotune scale` for the terminal: a sentence, a table and notes."""

from __future__ import annotations

from autotune.report.phrases import half_width, plain
from autotune.scaling.efficiency import BEYOND_LINEAR, WANTED_EFFICIENCY, ScalePoint, ScaleResult, verdict_at
from autotune.units import counted, format_count, format_rate, format_seconds, format_share

TITLES = ("ranks", "micro-batch", "samples/s", "efficiency", "samples per rank-hour")


def scale_lines(result: ScaleResult) -> list[str]:
    """Return the result in one sentence, the table, and notes on the numbers."""
    rows = [TITLES, *map(_row, result.points)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    table = ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    where = f"{counted(result.probes, 'probe')}, {format_seconds(result.seconds)} on {result.environment.device_name}"
    return [
        _sentence(result),
        "",
        *table,
        "",
        f"  {where} · {result.folder}",
        *(f"  ! {one}" for one in _notes(result)),
    ]


def _sentence(result: ScaleResult) -> str:
    best, tried = result.most_efficient, len(result.points)
    share, first = format_share(WANTED_EFFICIENCY), result.points[0].ranks
    wanted = f"{share} efficiency" if first == 1 else f"{share} of the efficiency of {first} ranks"
    batch = f"with the global batch of {result.global_batch_size:,} held"
    open_ones = [str(one.ranks) for one in result.points if verdict_at(one) == "undecided"]
    if tried == 1:
        return f"{plain(result.target)}: only {counted(best.ranks, 'rank')} was measured, {batch}."
    doubt = f"undecided whether {' or '.join(open_ones)} ranks reach {wanted}" if open_ones else ""
    if str(best.ranks) in open_ones:
        sure = [one.ranks for one in result.points[1:] if verdict_at(one) == "efficient"]
        known = f"{max(sure)} ranks surely reach {wanted}; " if sure else ""
        return f"{plain(result.target)}: {known}{doubt}, {batch}."
    return (
        f"{plain(result.target)}: {counted(best.ranks, 'rank')} {'is' if best.ranks == 1 else 'are'} the most "
        f"with at least {wanted}, {batch}"
        f" ({format_rate(best.samples_per_second)} samples/s){doubt and f'; {doubt}'}."
    )


def _row(one: ScalePoint) -> tuple[str, ...]:
    low, high = one.efficiency_low, one.efficiency_high
    between = "" if low is None or high is None else f" ({format_share(low)} to {format_share(high)})"
    spread = half_width(one.relative_half_width) if one.relative_half_width is not None else "–"
    return (
        str(one.ranks),
        f"{one.batch_size}×{one.gradient_accumulation_steps}",
        f"{format_rate(one.samples_per_second)} ± {spread}",
        format_share(one.efficiency) + between,
        format_count(round(one.samples_per_rank_hour)),
    )


def _notes(result: ScaleResult) -> list[str]:
    found, sizes = [], dict.fromkeys(one.batch_size for one in result.points)
    cores, most = result.environment.usable_cores, result.points[-1].ranks
    if result.has_batch_norm and len(sizes) > 1:
        told = " and ".join(map(str, sizes))
        found.append(
            f"BatchNorm sees the micro-batch of a rank, which is {told}: what is learned differs with their number."
        )
    first, last = result.points[0], result.points[-1]
    if result.has_data_parallel and first.ranks == 1 and last is not first:
        rates = [format_rate(one.samples_per_second) for one in (first, last)]
        found.append(
            f"One rank is torch.nn.DataParallel on all devices that it sees: {rates[0]} samples/s. "
            f"DistributedDataParallel by {last.ranks} ranks: {rates[1]}. Compare them where {last.ranks} devices are "
            f"visible; on a CPU DataParallel does nothing."
        )
    if result.environment.device == "cpu" and most > cores:
        found.append(f"{most} ranks share {counted(cores, 'core')}: a machine with a core for each has another curve.")
    if (most_of := max(one.efficiency_low or 0.0 for one in result.points)) > BEYOND_LINEAR:
        found.append(
            f"An efficiency of {format_share(most_of)} or more is not a gain of ranks: the single process was probably "
            f"slowed, by other work on the machine or by too many threads."
        )
    if result.with_interference:
        found.append(
            f"{result.with_interference} of {counted(result.probes, 'probe')} had interference: others used the "
            f"machine. Measure again when it is quiet."
        )
    return found
