"""Honest messages of any size come whole; what would take long to decode is refused before."""

import asyncio
import base64
import json
from typing import Any

import pytest
from pydantic import ValidationError

from arriero.agent.link.outgoing import AgentCodec, outputs
from arriero.balancer.fleet.runtime.decoding import MAX_MESSAGE_BYTES, CostlyMessage, decoded
from arriero.shared.framing.frames import MAX_MESSAGE_BYTES as MAX_REPLY_BYTES
from arriero.shared.framing.frames import PIECE_BYTES
from arriero.shared.inference import MAX_TOKEN_IDS, RequestId
from arriero.shared.inference.events import MAX_TOP_LOGPROBS, LogProb, TokenLogProbs
from arriero.shared.messages import (
    MAX_ITEMS,
    Busy,
    Called,
    Evicted,
    FromAgent,
    LogRead,
    Output,
    Piece,
    Reply,
    encode_from_agent,
)
from arriero.shared.queries import MAX_INPUTS, Embedded, Ranked, Score, Tokenized, Vector
from arriero.shared.reports.log_lines import MAX_LINE, MAX_LINES, LogLine

ID = RequestId("a" * 32)
PROB = LogProb(token=151_643, piece=b"<|endoftext|>", log_prob=-12.345678901234)
PROBS = TokenLogProbs(PROB, (PROB,) * MAX_TOP_LOGPROBS)
VECTOR = base64.b64encode(bytes(4 * 2560)).decode()

HONEST: dict[str, FromAgent] = {
    "embeddings": Reply(id=ID, result=Embedded(vectors=(Vector(vector=VECTOR),) * MAX_INPUTS)),
    "scores": Reply(id=ID, result=Ranked(scores=(Score(score=-0.1234567891234),) * MAX_INPUTS)),
    "log": LogRead(
        id=ID,
        lines=(LogLine(number=2**52, at=1e9, level="info", text='"\n' * MAX_LINE),) * MAX_LINES,
    ),
    "evicted": Evicted(keys=(2**62,) * 4096),
    "a call": Output(
        items=(Called(id=ID, call_id="c", name="f", arguments='{"text": "x"}\n' * 60_000),)
    ),
}


@pytest.mark.parametrize("kind", HONEST)
async def test_the_largest_honest_messages_come_whole(kind: str) -> None:
    text = encode_from_agent(HONEST[kind])
    assert PIECE_BYTES < len(text) <= MAX_REPLY_BYTES
    assert await decoded(text) == HONEST[kind]


async def test_a_prompt_with_all_its_log_probabilities_comes_in_parts() -> None:
    piece = Piece(id=ID, text="the prompt", kind="prompt", log_probs=(PROBS,) * 2048)
    parts = [*outputs((piece,))]
    assert len(parts) == 8
    items = [
        item
        for part in parts
        if isinstance(message := await decoded(encode_from_agent(part)), Output)
        for item in message.items
        if isinstance(item, Piece)
    ]
    assert "".join(item.text for item in items) == "the prompt"
    assert {item.kind for item in items} == {"prompt"}
    assert sum((item.log_probs or () for item in items), ()) == piece.log_probs


@pytest.mark.parametrize("num_tokens", [0, 1, 5_000, 100_000, MAX_TOKEN_IDS])
async def test_tokens_of_a_text_are_decoded_in_parts(num_tokens: int) -> None:
    reply = Reply(id=ID, result=Tokenized(tokens=tuple(range(num_tokens))))
    assert await decoded(encode_from_agent(reply)) == reply


async def test_others_run_while_tokens_are_decoded() -> None:
    text = encode_from_agent(Reply(id=ID, result=Tokenized(tokens=(151_643,) * 500_000)))
    num_turns = 0
    decoding = asyncio.ensure_future(decoded(text))
    while not decoding.done():
        await asyncio.sleep(0)
        num_turns += 1
    assert num_turns > len(text) // (128 * 1024)


def tokenized(tokens: str) -> bytes:
    return (
        f'{{"type":"reply","id":"a","result":{{"type":"tokenized","tokens":[{tokens}]}}}}'.encode()
    )


@pytest.mark.parametrize("bad", ["-1", "[]", "1.5", "]", "],[", '"x"', "1]}},{", ",", "null"])
async def test_what_is_no_list_of_tokens_is_none(bad: str) -> None:
    some = ",".join(["7"] * 50_000)
    with pytest.raises(ValidationError):
        await decoded(tokenized(f"{some},{bad},{some}"))


COSTLY: dict[str, bytes] = {
    "items": b'{"type":"output","items":[' + b'{"type":"busy","id":""},' * 100_000 + b"0]}",
    "unknown fields": json.dumps(
        {"type": "heartbeat"} | {f"k{number}": 0 for number in range(100_000)}
    ).encode(),
    "numbers": b'{"type":"evicted","keys":[' + b"7," * 1_000_000 + b"7]}",
    "lists": b'{"type":"evicted","keys":[' + b"[]," * 100_000 + b"7]}",
    "escapes": b'{"type":"reply","x":"' + b"\\n" * 2_000_000 + b'"}',
    "bytes": b'{"type":"output","x":"' + b"x" * MAX_MESSAGE_BYTES + b'"}',
    "tokens": tokenized("7," * MAX_TOKEN_IDS + "7"),
}


@pytest.mark.parametrize("kind", COSTLY)
async def test_what_would_take_long_is_refused(kind: str) -> None:
    with pytest.raises(CostlyMessage):
        await decoded(COSTLY[kind])


async def test_so_many_items_are_too_many() -> None:
    items: Any = (Busy(id=ID),) * (MAX_ITEMS + 1)
    with pytest.raises(ValidationError, match="at most 1024 items"):
        await decoded(encode_from_agent(Output(items=items)))


def test_an_agent_does_not_send_more_tokens_than_a_balancer_takes() -> None:
    codec = AgentCodec(lambda _id: None)
    with pytest.raises(ValueError, match="more than"):
        codec.encode(Reply(id=ID, result=Tokenized(tokens=(7,) * (MAX_TOKEN_IDS + 1))))
