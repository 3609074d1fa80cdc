import pytest

from arriero.balancer.api.transport.waiting import (
    EVENTS_AFTER,
    comment,
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
    assert (events_after(True), events_after(False)) == (EVENTS_AFTER, None)
