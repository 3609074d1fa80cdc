"""What balancers tell one another is read as it was written, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.management.elsewhere import told
from arriero.balancer.management.elsewhere.told import AboutRequest
from arriero.balancer.management.request_filter import RequestFilter
from arriero.shared.inference import RequestId


def test_a_filter_is_read_as_it_was_written() -> None:
    chosen = RequestFilter.of({"state": "running", "model": "é", "limit": "7"})
    text = told.written(told.FILTER, chosen)
    assert text.isascii() and told.read(told.FILTER, text) == chosen


def test_a_later_version_may_say_more() -> None:
    assert told.read(told.ABOUT_REQUEST, '{"id":"r","why":"x"}') == AboutRequest(id=RequestId("r"))


@given(st.binary(max_size=30))
def test_anything_else_is_nothing(body: bytes) -> None:
    for kind in (told.FLEET, told.REQUESTS, told.CANCEL):
        assert told.read(kind, body) is None  # type: ignore[arg-type]
