"""What goes through the pipes is one line, and read as it was told."""

import pytest

from arriero.balancer.cluster.peer_store import Beat, Peer
from arriero.balancer.cluster.worker_messages import (
    Beating,
    Granted,
    Lead,
    Leave,
    Living,
    Peers,
    Ready,
    Refresh,
    Spread,
    Stop,
    ToParent,
    ToWorker,
    decode_to_parent,
    decode_to_worker,
    encode,
)

BEAT = Beat(run="r", name="a\nb", version="1", is_leading=True, waiting='{"m":[1,2.0]}')


@pytest.mark.parametrize(
    "message",
    [
        Living(("a", "b")),
        Stop(),
        Refresh(),
        Peers(1, (Peer(BEAT, 0.5, 7.0),)),
        Granted(2, None),
        Spread(("n",)),
    ],
)
def test_to_a_worker(message: ToWorker) -> None:
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1
    assert decode_to_worker(line) == message


@pytest.mark.parametrize(
    "message", [Ready({"a": "b"}), Beating(1, BEAT), Lead(1, 3), Leave(), Spread(("n",))]
)
def test_to_the_parent(message: ToParent) -> None:
    assert decode_to_parent(encode(message)) == message


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError):
        decode_to_parent(b"ready balancer")
