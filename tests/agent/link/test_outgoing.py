"""Which of the agent's messages belong together, and what becomes of those that cannot be sent."""

import pytest

from arriero.agent.link.outgoing import MOST_MERGED, AgentCodec
from arriero.shared.framing.frames import PIECE_BYTES, Assembler, FrameQueue
from arriero.shared.inference import RequestId
from arriero.shared.messages import (
    FromAgent,
    Heartbeat,
    Hello,
    Output,
    Piece,
    Refused,
    Reply,
    decode_from_agent,
)
from arriero.shared.queries import Declined, Detokenized
from tests.agent.link.sessions import HELLO

TEXT = "x" * (3 * PIECE_BYTES)


def piece(id: str, text: str = "x") -> Piece:
    return Piece(id=RequestId(id), text=text)


def output(*pieces: Piece) -> Output:
    return Output(items=pieces)


def sent(*messages: FromAgent, failed: list[RequestId] | None = None) -> list[FromAgent]:
    """What arrives, in order. `failed` gets those that could not be sent."""
    on_unsendable = [] if failed is None else failed
    queue: FrameQueue[FromAgent] = FrameQueue(AgentCodec(on_unsendable.append))
    for message in messages:
        queue.put(message)
    assembler = Assembler()
    texts = [data if is_text else assembler.take(data) for data, is_text in iter(queue.next, None)]
    return [decode_from_agent(text) for text in texts if text is not None]


def test_a_large_piece_of_one_request_does_not_hold_up_the_others() -> None:
    step = output(piece("large", TEXT), piece("a", "1"), piece("b", "2"))
    later = output(piece("large", "end"), piece("a", "3"))
    assert sent(step, later, Heartbeat()) == [
        output(piece("a", "1"), piece("b", "2")),
        output(piece("a", "3")),
        Heartbeat(),
        output(piece("large", TEXT)),
        output(piece("large", "end")),
    ]


def test_steps_that_wait_for_a_large_piece_are_merged() -> None:
    steps = [output(piece("a", str(number))) for number in range(MOST_MERGED + 1)]
    _, first, second = sent(output(piece("a", TEXT)), *steps)
    assert isinstance(first, Output) and isinstance(second, Output)
    assert len(first.items) == MOST_MERGED
    assert (*first.items, *second.items) == tuple(step.items[0] for step in steps)


def test_a_large_reply_lets_others_pass() -> None:
    large = Reply(id=RequestId("q.0"), result=Detokenized(text=TEXT))
    small = Reply(id=RequestId("q.1"), result=Detokenized(text="x"))
    assert sent(large, small) == [small, large]


def test_a_reply_that_cannot_be_written_declines_the_query() -> None:
    failed: list[RequestId] = []
    unsendable = Reply(id=RequestId("q.0"), result=Detokenized(text="\ud800"))
    [reply] = sent(unsendable, failed=failed)
    assert failed == ["q.0"]
    assert isinstance(reply, Reply) and isinstance(reply.result, Declined)
    assert reply.result.error.code == "engine_failed"


def test_an_item_that_cannot_be_written_ends_its_request_alone() -> None:
    failed: list[RequestId] = []
    refused, other = sent(output(piece("bad", "\ud800"), piece("good")), failed=failed)
    assert failed == ["bad"]
    assert isinstance(refused, Output)
    [item] = refused.items
    assert isinstance(item, Refused)
    assert (item.id, item.error.code) == ("bad", "engine_failed")
    assert other == output(piece("good"))


def test_what_is_about_no_request_has_nothing_in_its_place() -> None:
    bad: Hello = HELLO.__class__(
        protocol=1, agent_id=HELLO.agent_id, name="\ud800", version="1", slots=1
    )
    with pytest.raises(ValueError, match="`hello` cannot be sent"):
        sent(bad)
