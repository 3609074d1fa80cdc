"""Which of the agent's messages belong together, and what becomes of those that cannot be sent."""

import pytest

from arriero.agent.link.codec import MOST_EXPLAINED, MOST_MERGED, AgentCodec, outputs
from arriero.shared.framing.frames import PIECE_BYTES, Assembler, FrameQueue
from arriero.shared.inference import LogProb, RequestId, TokenLogProbs
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


PROBS = TokenLogProbs(LogProb(7, b"x", -1.0))


def explained(id: str, num_tokens: int) -> Piece:
    return Piece(id=RequestId(id), text=id, log_probs=(PROBS,) * num_tokens)


def test_a_step_is_one_message() -> None:
    items = tuple(piece(str(number)) for number in range(5000))
    assert [*outputs(items)] == [Output(items=items)]
    few = (explained("a", MOST_EXPLAINED - 1), explained("b", 1), piece("c"))
    assert [*outputs(few)] == [Output(items=few)]


def test_very_many_log_probabilities_are_several_messages() -> None:
    items = (piece("a"), explained("b", 2 * MOST_EXPLAINED + 5), explained("c", MOST_EXPLAINED))
    messages = [*outputs(items)]
    numbers = [
        sum(len(item.log_probs or ()) for item in message.items if isinstance(item, Piece))
        for message in messages
    ]
    assert numbers == [MOST_EXPLAINED, MOST_EXPLAINED, 5, MOST_EXPLAINED]
    texts = [item.text for each in messages for item in each.items if isinstance(item, Piece)]
    assert texts == ["x", "b", "", "", "c"]


def test_steps_with_many_log_probabilities_are_not_merged() -> None:
    half = output(explained("a", MOST_EXPLAINED // 2 + 1))
    assert sent(output(piece("a", TEXT)), half, half)[1:] == [half, half]
