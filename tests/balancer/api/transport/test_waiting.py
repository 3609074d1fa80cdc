import pytest

from arriero.balancer.api.transport.waiting import (
    EVENTS_AFTER,
    comment,
    events_after,
    headers_after,
)
from arriero.shared.inference import Waiting


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (Waiting(3, "slot"), b": waiting position=3 for=slot\n\n"),
        (Waiting(1, "model", 12.0), b": waiting position=1 for=model seconds_left=12\n\n"),
    ],
)
def test_a_comment(waiting: Waiting, said: bytes) -> None:
    assert comment(waiting) == said


def test_only_streams_say_anything_before_their_end() -> None:
    assert (events_after(True), events_after(False)) == (EVENTS_AFTER, None)
    assert (headers_after(True, 20.0, ()), headers_after(False, 20.0, ["wait=1"])) == (20.0, None)


@pytest.mark.parametrize(
    ("preferences", "after"),
    [
        (["wait=3"], 3.0),
        (['respond-async, Wait = "7"; foo=1'], 7.0),
        (["wait=9", "return=minimal"], 9.0),
        (["wait=0"], 0.0),
        (["wait=60"], 20.0),
        (["wait=9" * 100], 20.0),
        (["wait=soon", "wait=-1, wait=\u0663", "wait"], 20.0),
    ],
)
def test_a_client_may_prefer_an_earlier_beginning(preferences: list[str], after: float) -> None:
    assert headers_after(True, 20.0, preferences) == after
