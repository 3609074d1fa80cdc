"""Every API gets hostile requests while a stream runs beside them, and nobody else notices.

After each request the fleet still answers; after all of an API's the bystander has neither ended
nor stalled, no slot is taken by anybody else, and the daemons have not logged a traceback: whatever
the request was, it was refused or served, and never a surprise.

`make search` looks for more.
"""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from typing import Any, TypeVar

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from arriero.shared import messages
from arriero.shared.inference import AgentId
from arriero.shared.reports.model_info import ModelInfo
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices import hostile
from integration_tests.nobody_else_notices.bystander import MOST_GAP, Bystander, bystander

T = TypeVar("T")

NUM_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "25"))
"""For each API; set the variable to look for more, with examples drawn anew."""
PATIENCE = 0.2
"""Seconds of an answer that are listened to: disconnecting early is part of the test."""
ANSWER_DEADLINE = 10.0
"""Seconds within which a request begins to be answered."""

few = settings(
    max_examples=NUM_EXAMPLES,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Stage:
    """A fleet on an event loop of its own thread, so that Hypothesis can call it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage")
        self._thread.start()
        self._stack = AsyncExitStack()
        self.fleet = Fleet(self._stack)
        self.bystander: Bystander | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def open(self) -> None:
        await self.fleet.open_client()
        await self.fleet.start_balancer()
        await self.fleet.start_agent(context_size=LONG_CONTEXT)

    def attack(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs one hostile conversation; the bystander must be well right after it."""
        self.run(coroutine)
        self.run(self._look_at_the_bystander())

    async def _look_at_the_bystander(self) -> None:
        assert self.bystander is not None
        self.bystander.check(MOST_GAP)

    def close(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    try:
        stage.run(stage.open())
        yield stage
    finally:
        stage.close()


@pytest.fixture
def watched(stage: Stage) -> Iterator[Stage]:
    """The stage with a bystander's stream running; what it went through is checked at the end."""
    context = bystander(stage.fleet)
    stage.bystander = stage.run(context.__aenter__())
    known = len(_surprises(stage.fleet))
    try:
        yield stage
        stage.run(_until_alone(stage.fleet))
        surprises = _surprises(stage.fleet)[known:]
        assert not surprises, "\n".join(line[:3000] for line in surprises[:3])
    finally:
        stage.run(context.__aexit__(None, None, None))


async def _until_alone(fleet: Fleet) -> None:
    """Waits until nothing but the bystander's request is known."""

    async def alone() -> bool:
        return len(await fleet.view("requests")) == 1 and await fleet.busy_slots() == 1

    await until(alone, deadline=15)


def _surprises(fleet: Fleet) -> list[str]:
    """Log lines of unexpected errors."""
    lines = [line for daemon in (fleet.balancer, *fleet.agents) for line in daemon.stderr]
    return [line for line in lines if "Traceback" in line or '"level": "CRITICAL"' in line]


async def post(fleet: Fleet, path: str, body: bytes) -> None:
    """Sends `body` and listens for a while; what comes of it must be a proper answer."""
    headers = {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    url = fleet.inference + path
    async with asyncio.timeout(ANSWER_DEADLINE):
        asked = await fleet.http.post(url, data=BytesIO(body), headers=headers, timeout=timeout)
        error = await asked.text() if asked.status >= 500 else ""
    async with asked as response:
        assert response.status not in (500, 502), error
        assert "shutting" not in error
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                text = await response.text()
                assert '"internal_error"' not in text, text[-500:]
                assert '"agent_lost"' not in text, text[-500:]


@pytest.mark.parametrize("path", hostile.BODIES)
def test_hostile_bodies(watched: Stage, path: str) -> None:
    @few
    @given(body=hostile.bodies(path))
    def hurt_nobody(body: bytes) -> None:
        watched.attack(post(watched.fleet, path, body))

    hurt_nobody()


def test_hostile_frames_on_a_socket(watched: Stage) -> None:
    async def converse(frames: list[hostile.Payload]) -> None:
        url = f"{watched.fleet.inference}/api/v1/socket"
        async with watched.fleet.http.ws_connect(url) as socket:
            for frame in frames:
                await socket.send_str(frame.decode())
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    async for message in socket:
                        answer = json.loads(message.data)
                        assert answer.get("error", {}).get("code") != -32603, answer

    @few
    @given(frames=hostile.frames())
    def hurt_nobody(frames: list[hostile.Payload]) -> None:
        watched.attack(converse(frames))

    hurt_nobody()


@pytest.mark.parametrize("port", ["inference", "management"])
def test_hostile_bytes_on_a_connection(watched: Stage, port: str) -> None:
    async def push(data: bytes) -> None:
        host, _, number = watched.fleet.balancer.ready[port].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number))
        try:
            writer.write(data)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.1):
                    await reader.read(65536)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    @few
    @given(data=hostile.wire())
    def hurt_nobody(data: bytes) -> None:
        watched.attack(push(data))

    hurt_nobody()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/agents/{}"),
        ("DELETE", "/api/v1/requests/{}"),
        ("GET", "/api/v1/requests?state={}&limit={}&model={}"),
        ("GET", "/dashboard/{}"),
    ],
)
def test_hostile_names_on_the_management_port(watched: Stage, method: str, path: str) -> None:
    async def ask(name: str) -> None:
        url = watched.fleet.management + path.replace("{}", name)
        with suppress(aiohttp.InvalidURL):
            async with watched.fleet.http.request(method, url) as response:
                assert response.status < 500, await response.text()

    names = st.one_of(
        st.text(min_size=1, max_size=60), st.sampled_from(["%00", "..%2f", "a" * 9000])
    )

    @few
    @given(name=names)
    def hurt_nobody(name: str) -> None:
        watched.attack(ask(name))

    hurt_nobody()


def test_hostile_agents(watched: Stage) -> None:
    """Somebody dials in as an agent and sends garbage; that affects nobody else."""

    async def dial(frames: list[bytes]) -> None:
        url = f"{watched.fleet.management}/api/v1/agent-socket"
        async with watched.fleet.http.ws_connect(url) as socket:
            for frame in frames:
                with suppress(ConnectionError):
                    await socket.send_str(frame.decode(errors="replace"))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await socket.receive()

    @few
    @given(
        frames=st.lists(st.one_of(st.binary(max_size=64), hostile.mutated(_hello())), max_size=3)
    )
    def hurt_nobody(frames: list[bytes]) -> None:
        watched.attack(dial(frames))

    hurt_nobody()


def _hello() -> dict[str, Any]:
    info = ModelInfo(name="other", architecture="x", parameters=1, size_bytes=1, context_size=64)
    hello = messages.Hello(
        protocol=messages.PROTOCOL_VERSION,
        agent_id=AgentId("x"),
        name="x",
        version="0",
        slots=4,
        model=info,
    )
    fields: dict[str, Any] = json.loads(messages.encode_from_agent(hello))
    return fields
