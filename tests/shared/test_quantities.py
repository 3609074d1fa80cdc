"""Durations, sizes and addresses as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.shared.quantities import (
    MAX_SIZE,
    Address,
    format_duration,
    parse_address,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("90d", 7_776_000.0),
        (" 2 m ", 120.0),
        ("0", 0.0),
        (30.0, 30.0),
        (0.00001, 0.00001),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1e3", "nan", "inf", "5 minutes", "ms", "1_0", "9999999h", "٣"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration .*such as 10, 500ms, 2m, 12h or 7d"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_formatted_duration_reads_as_itself(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (1000.001, "1000.001s"),
        (30, "30s"),
        (120, "2m"),
        (3600, "1h"),
    ],
)
def test_formatted_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8060", Address("127.0.0.1", 8060)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        (":0", Address("127.0.0.1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8060", Address("::1", 8060)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "8060", "localhost", "localhost:", "localhost:x", "h:65536", "::1:80", "[::1]"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be HOST:PORT such as 127\.0\.0\.1:8060"):
        parse_address(text)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert str(Address("::1", 80)) == "[::1]:80"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        (1000, 1000),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("500MB", 500 * 10**6),
        (" 1.5 GiB ", 3 * 2**29),
        ("10gib", 10 * 2**30),
        ("2TB", 2 * 10**12),
        ("0.0001KB", 0),
        (str(MAX_SIZE), MAX_SIZE),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "much", "2T", "-1", "1e9", "nan", "GiB", "1 GiB more", "1_0", "2000TiB", "9" * 99],
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a size in bytes, such as 1000000, 500MB"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=MAX_SIZE))
def test_a_plain_size_is_taken_exactly(size: int) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_what_nobody_else_reaches(host: str) -> None:
    assert Address(host, 1).is_loopback
    assert not Address(host, 1).is_unspecified


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1", "gpu-box", ""])
def test_what_others_reach(host: str) -> None:
    assert not Address(host, 1).is_loopback
    assert Address(host, 1).is_unspecified == (host in ("0.0.0.0", "::"))
