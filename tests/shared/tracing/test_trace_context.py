"""The header `traceparent`, as clients may write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.shared.tracing.trace_context import LONGEST, TraceContext, read_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled=True)

numbers = st.integers(1, 2**64 - 1)


def test_the_standard_s_example() -> None:
    header = f"00-{TRACE}-{SPAN}-01"
    assert read_traceparent(header) == CONTEXT
    assert CONTEXT.traceparent == header


@given(st.integers(1, 2**128 - 1), numbers, st.booleans())
def test_what_is_written_is_read(trace_id: int, span_id: int, is_sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, is_sampled)
    assert read_traceparent(context.traceparent) == context


def test_only_one_flag_counts() -> None:
    assert read_traceparent(f"00-{TRACE}-{SPAN}-03") == CONTEXT
    found = read_traceparent(f"00-{TRACE}-{SPAN}-02")
    assert found is not None and not found.is_sampled


def test_a_later_version_may_say_more() -> None:
    assert read_traceparent(f"01-{TRACE}-{SPAN}-01-more") == CONTEXT


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "none",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'x' * LONGEST}",
    ],
)
def test_anything_else_is_ignored(header: str | None) -> None:
    assert read_traceparent(header) is None


@given(st.text(max_size=LONGEST + 10))
def test_no_header_is_too_strange(header: str) -> None:
    read_traceparent(header)
