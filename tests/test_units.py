import pytest

from autotune.units import (
    format_bytes,
    format_rate,
    format_seconds,
    format_share,
    parse_bytes,
    parse_fraction,
    parse_seconds,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("10min", 600), ("1.5h", 5400), ("1h30m", 5400)]
)
def test_durations_are_read_as_people_write_them(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10x", "-5m", "0", "m10", "5m later"])
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
    ("rate", "spread", "shown"),
    [
        (2605.4, 0.01, "2,610"),
        (2605.4, 0.001, "2,605"),
        (2605.4, 0.1, "2,600"),
        (12.345, 0.02, "12.3"),
        (0.0, 0.1, "0"),
    ],
)
def test_rates_show_the_digits_that_their_spread_supports(rate, spread, shown):
    assert format_rate(rate, spread) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(None, "–"), (512 * 2**20, "512 MiB"), (48.3 * GIB, "48.3 GiB"), (2000 * GIB, "2,000 GiB")]
)
def test_bytes_are_shown_with_a_unit(count, shown):
    assert format_bytes(count) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.84, "0.8 s"), (42, "42 s"), (312, "5:12 min"), (8400, "2:20 h")])
def test_seconds_are_shown_with_a_unit(seconds, shown):
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.09, "9%"), (0.004, "0.4%"), (0.0, "0%")])
def test_shares_are_shown(share, shown):
    assert format_share(share) == shown
