import pytest

from autotune.units import (
    counted,
    format_bytes,
    format_clock,
    format_difference,
    format_rate,
    format_seconds,
    format_share,
    format_speedup,
    parse_bytes,
    parse_fraction,
    parse_seconds,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("10min", 600),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h30", 5400),  # as on a clock: what follows hours without a unit are minutes
        ("1 h 30", 5400),
        ("2m30", 150),
        ("1h30m10", 5410),
    ],
)
def test_durations_are_read_as_people_write_them(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["2", "90", "1.5", "30 90m", "10s30"])
def test_a_number_without_a_unit_may_mean_minutes_and_is_refused(text):
    with pytest.raises(ValueError, match=r"has no unit: write \S+s for seconds or \S+m for minutes"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["", "soon", "10x", "-5m", "0s", "m10", "5m later"])
def test_what_is_no_duration_is_refused_with_the_forms(text):
    with pytest.raises(ValueError, match=r"duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GiB", 8 * GIB), ("8 gib", 8 * GIB), ("8G", 8 * GIB), ("8000MB", 8_000_000_000), ("123", 123), ("50%", 500)],
)
def test_amounts_of_memory_are_read_as_people_write_them(text, count):
    assert parse_bytes(text, total=1000) == count


@pytest.mark.parametrize("text", ["", "lots", "8 apples", "0", "0%", "101%", "-1GiB"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ValueError, match=r"memory|share"):
        parse_bytes(text, total=1000)


def test_a_share_without_a_whole_is_refused():
    with pytest.raises(ValueError, match="an amount is needed"):
        parse_bytes("90%")


@pytest.mark.parametrize(("text", "fraction"), [("8%", 0.08), ("0.08", 0.08), ("0", 0.0)])
def test_shares_are_read(text, fraction):
    assert parse_fraction(text) == fraction


@pytest.mark.parametrize("text", ["100%", "1", "-1%", "some"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ValueError, match="share"):
        parse_fraction(text)


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        (2605.4, "2,610"), (7702.0, "7,700"), (17123.0, "17,100"), (1_234_567.0, "1,230,000"), (849.8, "850"),
        (999.6, "1,000"), (12.345, "12.3"), (9.996, "10.0"), (1.5, "1.50"), (0.012345, "0.0123"), (0.0, "0"),
        (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_rates_show_three_digits(rate, shown):
    assert format_rate(rate) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 probes"), (1, "1 probe"), (1200, "1,200 probes")])
def test_one_of_a_kind_has_no_plural(count, shown):
    assert counted(count, "probe") == shown


def test_more_than_one_batch_or_process_ends_with_es():
    assert [counted(1, "batch"), counted(2048, "batch")] == ["1 batch", "2,048 batches"]
    assert [counted(1, "process"), counted(0, "process")] == ["1 process", "0 processes"]


def test_shown_rates_divide_to_the_shown_factor():
    shown = float(format_rate(17123.0).replace(",", "")) / float(format_rate(7702.0).replace(",", ""))

    assert format_speedup(17123.0 / 7702.0) == format_speedup(shown) == "2.22"


@pytest.mark.parametrize(
    ("factor", "shown"),
    [(1.0849, "1.08"), (17.13, "17.1"), (120.4, "120"), (0.956, "0.96"), (0.0042, "0.0042")],
)
def test_factors_show_what_a_person_compares(factor, shown):
    assert format_speedup(factor) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "–"),
        (0, "0 MiB"),
        (300 * 2**10, "300 KiB"),
        (200, "200 B"),
        (512 * 2**20, "512 MiB"),
        (48.3 * GIB, "48.3 GiB"),
        (2000 * GIB, "2,000 GiB"),
        (-3 * GIB, "-3 GiB"),
        (-5 * 2**20, "-5 MiB"),
    ],
)
def test_bytes_are_shown_with_a_unit(count, shown):
    assert format_bytes(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 s"), (0.00042, "0.42 ms"), (0.0042, "4.2 ms"), (0.0994, "99 ms"), (0.14, "0.14 s"), (0.994, "0.99 s"),
     (0.996, "1.0 s"), (5.55, "5.5 s"), (42, "42 s"), (312, "5:12 min"), (3599, "59:59 min"), (5390, "1:30 h"),
     (8400, "2:20 h")],
)  # fmt: skip
def test_seconds_are_shown_with_a_unit(seconds, shown):
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.9, "0:00"), (69.9, "1:09"), (3600, "60:00")])
def test_a_clock_counts_whole_seconds(seconds, shown):
    assert format_clock(seconds) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.17, "17%"), (0.0996, "10%"), (0.0994, "9.9%"), (0.015, "1.5%"), (0.004, "0.4%"), (1.5, "150%"),
     (0.0004, "less than 0.1%")],
)  # fmt: skip
def test_differences_of_rates_are_shown_with_two_digits(share, shown):
    assert format_difference(share) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.09, "9%"), (0.004, "0.4%"), (0.0, "0%"), (0.0003, "0%"), (-0.0003, "0%"), (-0.004, "-0.4%"), (-0.12, "-12%"),
     (0.994, "99%"), (0.996, "99.6%"), (0.99996, "99.9%"), (1.0, "100%"), (1.004, "100%")],
)  # fmt: skip
def test_shares_are_shown(share, shown):
    assert format_share(share) == shown
