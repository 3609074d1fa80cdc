"""Bodies that cost far more to check than to send: answered at once, and no stream notices.

Each of them stopped the balancer's event loop for seconds or minutes once, which ended streams and
cost agents their connections. Until it answers, the balancer may compute for a while at most: that
is measured, since a busy machine stretches every other time.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = {"Content-Type": "application/json"}
BYTES = 16 * 2**20 - 1000

MOST_WORK = 3.0
"""Seconds that it computes until it answers, at most."""


def filled(before: bytes, unit: bytes, after: bytes) -> bytes:
    return before + unit * ((BYTES - len(before) - len(after)) // len(unit)) + after


def names(num: int) -> Iterator[bytes]:
    return (b'"x%d":1' % number for number in range(num))


def messages(num: int, size: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "x" * size} for _ in range(num)]


NO_CALL = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "none"}]}
"""The result of a call that nobody made, so that what is right until then is refused as well."""

NOTHING_SAID = [*messages(4095, 4000), {"role": "user"}]
"""As many messages as may be, of which the last says nothing."""

HOSTILE: dict[str, tuple[str, bytes, int]] = {
    "wrong ids": ("/api/v1/generate", filled(b'{"prompt":[', b"-1,", b"-1]}"), 400),
    "wrong ids, as many as may be": (
        "/v1/completions",
        b'{"prompt":[' + b"-1," * 2**20 + b"-1]}",
        400,
    ),
    "empty lists": ("/api/v1/generate", filled(b'{"prompt":"x","tools":[', b"[],", b"[]]}"), 400),
    "strings": ("/api/v1/embed", filled(b'{"input":[', b'"",', b'""]}'), 400),
    "unknown members": (
        "/v1/chat/completions",
        b'{"messages":[],' + b",".join(names(250_000)) + b"}",
        400,
    ),
    "wrong biases": (
        "/api/v1/generate",
        b'{"prompt":"x","logit_bias":{' + b",".join(names(250_000)) + b"}}",
        400,
    ),
    "many copies of many ids": (
        "/v1/completions",
        b'{"n":128,"prompt":[' + b"1," * 1_000_000 + b"1]}",
        413,
    ),
    "many copies of a long text": (
        "/v1/chat/completions",
        json.dumps({"n": 128, "messages": messages(1, 8_000_000)}).encode(),
        413,
    ),
    "a query for each document": (
        "/v1/rerank",
        json.dumps({"query": "x" * 8_000_000, "documents": ["d"] * 2048}).encode(),
        413,
    ),
    "a user who says much in a row": (
        "/v1/messages/count_tokens",
        json.dumps({"messages": [*messages(4000, 4000), NO_CALL]}).encode(),
        400,
    ),
    "a user who says nothing in the end": (
        "/api/v1/generate",
        json.dumps({"messages": NOTHING_SAID}).encode(),
        400,
    ),
    "many users who say nothing": (
        "/api/v1/generate_batch",
        json.dumps({"requests": [{"messages": [{"role": "user"}] * 2000}] * 256}).encode(),
        400,
    ),
    "a frame's worth of brackets": ("/api/v1/generate", filled(b"", b"[", b""), 400),
    "quotes": ("/api/v1/generate", filled(b"", b'"', b""), 400),
}

MOST_IDS = b'{"prompt":[' + b"1," * (2**20 - 1) + b"1]}"
"""A prompt that is too long for any context, and otherwise what a client may send."""


@asynccontextmanager
async def at_once(fleet: Fleet) -> AsyncIterator[None]:
    """What is asked inside is answered without much work."""
    before = fleet.balancer.computing_seconds
    async with asyncio.timeout(DEADLINE):
        yield
    work = fleet.balancer.computing_seconds - before
    assert work < MOST_WORK, f"the balancer computed for {work:.2f} s"


async def post(fleet: Fleet, path: str, body: bytes) -> tuple[int, Any]:
    async with (
        at_once(fleet),
        fleet.http.post(fleet.inference + path, data=BytesIO(body), headers=JSON) as response,
    ):
        return response.status, await response.json()


async def test_hostile_bodies_are_refused(long_fleet: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        for name, (path, body, expected) in HOSTILE.items():
            status, answer = await post(long_fleet, path, body)
            assert status == expected, (name, answer)
            message = answer["error"]["message"]
            assert len(message) < 300, name
            await seen.until_more(1)

    await unnoticed(long_fleet, attack, harmless=lambda seen: read_most(long_fleet))


async def read_most(fleet: Fleet) -> None:
    """What is right and large costs some tenths of a second, more on a busy machine."""
    for _ in range(4):
        status, answer = await post(fleet, "/api/v1/generate", MOST_IDS)
        assert (status, answer["error"]["code"]) == (400, "prompt_too_long"), answer


async def test_hostile_frames_are_refused(long_fleet: Fleet) -> None:
    """The same over the WebSocket, which goes on."""

    async def attack(seen: Bystander) -> None:
        url = f"{long_fleet.inference}/api/v1/socket"
        async with long_fleet.http.ws_connect(url, max_msg_size=0) as socket:
            for unit in (b"-1,", b"[],", b'"",'):
                before = b'{"jsonrpc":"2.0","id":1,"method":"generate","params":{"prompt":['
                text = filled(before, unit, b"1]}}").decode()
                async with at_once(long_fleet):
                    await socket.send_str(text)
                    assert (await socket.receive_json())["error"]["code"] == -32600
                await seen.until_more(1)
            await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "ping"})
            assert (await socket.receive_json())["result"] == {"pong": True}

    await unnoticed(long_fleet, attack, harmless=lambda seen: read_most(long_fleet))


async def test_junk_of_a_false_agent(long_fleet: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        url = f"{long_fleet.management}/api/v1/agent-socket"
        for frame in ('{"type":"output","items":[%s1]}', '{"type":"hello","x":[%s1]}'):
            async with long_fleet.http.ws_connect(url) as socket, at_once(long_fleet):
                await socket.send_str(frame % ("1," * 500_000))
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE

    await unnoticed(long_fleet, attack, harmless=lambda seen: read_most(long_fleet))
