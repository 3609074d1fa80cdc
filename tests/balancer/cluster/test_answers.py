"""What balancers tell one another is read as it was written, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.cluster import answers
from arriero.balancer.cluster.answers import AboutRequest, CancelAnswer, FleetAnswer, RequestsAnswer
from arriero.balancer.management.request_filter import RequestFilter
from arriero.shared.inference import RequestId


def test_a_filter_is_read_as_it_was_written() -> None:
    chosen = RequestFilter.of({"state": "running", "model": "é", "limit": "7"})
    text = answers.written(RequestFilter, chosen)
    assert text.isascii() and answers.read(RequestFilter, text) == chosen


def test_a_later_version_may_say_more() -> None:
    assert answers.read(AboutRequest, '{"id":"r","why":"x"}') == AboutRequest(id=RequestId("r"))


@given(st.binary(max_size=30))
def test_anything_else_is_nothing(body: bytes) -> None:
    for kind in (FleetAnswer, RequestsAnswer, CancelAnswer):
        assert answers.read(kind, body) is None  # type: ignore[arg-type]
