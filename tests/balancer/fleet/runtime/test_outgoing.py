"""Which of the balancer's messages belong together, and what ends a large one early."""

import pytest

from arriero.balancer.fleet.runtime.outgoing import BalancerCodec
from arriero.shared.framing.frames import PIECE_BYTES, FrameQueue
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Ask,
    Cancel,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Start,
    Withdraw,
    decode_from_balancer,
)
from arriero.shared.queries import Tokenize

ID = RequestId("r")
TEXT = "x" * (3 * PIECE_BYTES)


def whole_frames(*messages: FromBalancer) -> list[FromBalancer]:
    """What leaves as text frames, in order."""
    queue: FrameQueue[FromBalancer] = FrameQueue(BalancerCodec())
    for message in messages:
        queue.put(message)
    sent = iter(queue.next, None)
    return [decode_from_balancer(data) for data, is_text in sent if is_text]


def test_heartbeats_and_other_requests_overtake_a_large_start() -> None:
    small = Start(id=RequestId("s"), request=GenerateRequest(prompt="hi"))
    others = [small, Heartbeat(), Goodbye()]
    large = Start(id=ID, request=GenerateRequest(prompt=TEXT))
    assert whole_frames(large, *others) == others


def test_cancelling_a_large_start_is_answered_by_the_agent() -> None:
    large = Start(id=ID, request=GenerateRequest(prompt=TEXT))
    assert whole_frames(large, Cancel(id=ID)) == [Cancel(id=ID, is_unsent=True)]


def test_withdrawing_a_large_query_is_not() -> None:
    large = Ask(id=ID, query=Tokenize(text=TEXT))
    assert whole_frames(large, Withdraw(id=ID)) == []


def test_a_cancel_behind_a_small_start_goes_as_it_is() -> None:
    small = Start(id=ID, request=GenerateRequest(prompt="hi"))
    assert whole_frames(small, Cancel(id=ID)) == [small, Cancel(id=ID)]


def test_what_cannot_be_written_is_a_fault_of_ours() -> None:
    bad = Start(id=ID, request=GenerateRequest(prompt="\ud800"))
    with pytest.raises(ValueError, match="`start` cannot be sent"):
        whole_frames(bad)
