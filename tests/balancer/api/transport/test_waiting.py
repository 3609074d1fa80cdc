import pytest

from arriero.balancer.api.transport.waiting import (
    COMMENTS_AFTER,
    EVENTS_AFTER,
    comment,
    comments_after,
    events_after,
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
    assert (events_after(True), comments_after(True)) == (EVENTS_AFTER, COMMENTS_AFTER)
    assert (events_after(False), comments_after(False)) == (None, None)
