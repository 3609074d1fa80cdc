"""Callers that take all the memory of a balancer that they get, and one that wants little.

For a test with small bounds, and for `bench.held_memory` with the real ones. Bodies are written in
parts, so that many callers of one process share one body.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit

from arriero.client import Client
from integration_tests.daemons import Fleet
from integration_tests.rogue_agent import RogueAgent, ended, model_info, piece

QUICK = "quick"
"""A model that answers at once. A prompt that begins with `MUCH` gets as many tokens as it wants,
each with the log-probabilities that come with `top_logprobs` of 20."""

FULL = "full"
"""A model with one slot that never answers: its requests wait."""

MUCH = "much"

PART = 2**18
TOKENS_AT_ONCE = 32

_LIKELY = {"token": 7, "piece": "YXJyaWVybw==", "log_prob": -1.25}
LOG_PROBS = [{"chosen": _LIKELY, "top": [_LIKELY] * 20}]


def _wide(name: str) -> dict[str, Any]:
    """A model in whose context everything fits."""
    return model_info(name, context_size=2**21)


async def make_key(fleet: Fleet, admin: str, name: str, role: str = "inference") -> str:
    """A new access key."""
    async with Client(management=fleet.management, key=admin) as client:
        return str((await client.management.create_key(name, role))["key"])


@asynccontextmanager
async def agents(fleet: Fleet, key: str, *, most: int) -> AsyncIterator[None]:
    """Agents with the models `QUICK` and `FULL`; `most` tokens of an answer to `MUCH`."""
    shown = {"Authorization": f"Bearer {key}"}
    async with (
        RogueAgent.dial(fleet, QUICK, slots=64, model=_wide(QUICK), headers=shown) as quick,
        RogueAgent.dial(fleet, FULL, slots=1, model=_wide(FULL), headers=shown),
    ):
        answering = asyncio.create_task(_answer(quick, most))
        try:
            yield
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def _answer(agent: RogueAgent, most: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                start = await agent.next("start")
            except TimeoutError:
                continue  # nothing was asked for a while
            prompt = start["request"].get("prompt") or ""
            num = most if isinstance(prompt, str) and prompt.startswith(MUCH) else 1
            tasks.create_task(_pour(agent, start, num))


async def _pour(agent: RogueAgent, start: dict[str, Any], num: int) -> None:
    log_probs = LOG_PROBS if num > 1 else []
    count = min(TOKENS_AT_ONCE, num)
    items = [piece(start, "a", log_probs=log_probs)] * count
    output = json.dumps({"type": "output", "items": items}).encode()
    for _ in range(num // count):
        await agent.send_bytes(output)
    await agent.items(ended(start, usage={"prompt_tokens": 3, "completion_tokens": num}))


async def post(
    fleet: Fleet,
    path: str,
    key: str,
    body: bytes,
    *,
    drips: bool = False,
    turn: asyncio.Semaphore | None = None,
) -> tuple[int, bytes]:
    """The status and the beginning of the answer; 0 if the connection was cut without one.

    If it `drips`, all but the last bytes are sent, and then one of them each second. As many
    bodies are sent at once as `turn` allows.
    """
    address = urlsplit(fleet.inference)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    at_once = len(body) - 600 if drips else len(body)
    async with turn or nullcontext():
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        answering = asyncio.create_task(_answer_of(reader))
        sending = asyncio.create_task(_send(writer, head.encode(), memoryview(body)[:at_once]))
        await asyncio.wait({answering, sending}, return_when=asyncio.FIRST_COMPLETED)
    dripping = asyncio.create_task(_drip(writer, body[at_once:]))
    try:
        return await answering
    finally:
        for task in (sending, dripping, answering):
            task.cancel()
        writer.transport.abort()
        await asyncio.gather(sending, dripping, answering, return_exceptions=True)


async def _answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    answer = b""
    try:
        while part := await reader.read(PART):
            answer += part if len(answer) < PART else b""
    except ConnectionError:
        pass  # what came before counts
    return (int(answer.split(b" ", 2)[1]) if answer else 0), answer


async def _send(writer: asyncio.StreamWriter, head: bytes, body: memoryview) -> None:
    with suppress(ConnectionError):
        writer.write(head)
        for start in range(0, len(body), PART):
            writer.write(body[start : start + PART])
            await writer.drain()


async def _drip(writer: asyncio.StreamWriter, rest: bytes) -> None:
    with suppress(ConnectionError):
        for place in range(len(rest)):
            await asyncio.sleep(1)
            writer.write(rest[place : place + 1])
            await writer.drain()


async def unfinished_message(fleet: Fleet, num_bytes: int) -> int | None:
    """A WebSocket without a key sends so many bytes of a message; the code that closes it."""
    async with fleet.http.ws_connect(f"{fleet.inference}/api/v1/socket") as socket:
        transport = socket._writer.transport
        if transport is None:
            return None
        header = b"\x01" + bytes([0x80 | 127]) + (num_bytes + 1).to_bytes(8, "big") + bytes(4)
        transport.write(header)
        sent = 0
        closing = asyncio.create_task(socket.receive())
        while sent < num_bytes and not closing.done():
            if transport.get_write_buffer_size() < PART:
                transport.write(b" " * PART)
                sent += PART
            await asyncio.sleep(0.01)
        await closing
        return socket.close_code


# ---- bodies


def generate(prompt: str | Sequence[int], model: str = QUICK, **more: object) -> bytes:
    """A body of `/api/v1/generate` without streaming."""
    return json.dumps({"model": model, "prompt": prompt, "stream": False, **more}).encode()


def token_ids(num_bytes: int) -> list[int]:
    """Those of a body of about so many bytes."""
    return [123456] * (num_bytes // 8)


def background(num_bytes: int, model: str = FULL) -> bytes:
    """A body of `/v1/responses` in the background."""
    return json.dumps({"model": model, "input": "x" * num_bytes, "background": True}).encode()
