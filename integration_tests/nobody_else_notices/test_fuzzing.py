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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from io import BytesIO
from itertools import count
from typing import Any, TypeVar

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from arriero.shared import messages
from integration_tests.corpus import LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import DEADLINE, MODEL, Fleet, until
from integration_tests.nobody_else_notices import hostile
from integration_tests.nobody_else_notices.bystander import ALLOWANCE, Bystander, bystander
from integration_tests.rogue_agent import RogueAgent, hello, model_info

T = TypeVar("T")

NUM_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "15"))
"""For each API; set the variable to look for more, with examples drawn anew."""
PATIENCE = 0.2
"""Seconds of an answer that are listened to: disconnecting early is part of the test."""
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
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10 * DEADLINE)

    async def open(self) -> None:
        await self.fleet.open_client()
        await self.fleet.start_balancer()
        await self.fleet.start_agent(context_size=LONG_CONTEXT)

    def attack(self, converse: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a hostile conversation; the bystander must be well right after it."""
        self.run(self._beside_the_bystander(converse))

    async def _beside_the_bystander(
        self, converse: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """A pause is looked into where there is one: each wait for the stream costs time."""
        assert self.bystander is not None
        if await self.bystander.longest_pause(converse(), num_after=1) >= ALLOWANCE:
            noticed = await self.bystander.compare(lambda seen: converse())
            assert not noticed, f"the bystander's stream stood still: {noticed}"

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

    await until(alone)


def _surprises(fleet: Fleet) -> list[str]:
    """Log lines of unexpected errors."""
    lines = [line for daemon in (fleet.balancer, *fleet.agents) for line in daemon.stderr]
    return [line for line in lines if "Traceback" in line or '"level": "CRITICAL"' in line]


async def post(fleet: Fleet, path: str, body: bytes) -> None:
    """Sends `body` and listens for a while; what comes of it must be a proper answer."""
    headers = {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    url = fleet.inference + path
    async with asyncio.timeout(DEADLINE):
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
        watched.attack(lambda: post(watched.fleet, path, body))

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
        watched.attack(lambda: converse(frames))

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
        watched.attack(lambda: push(data))

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
        watched.attack(lambda: ask(name))

    hurt_nobody()


ERRANDS = sorted(hostile.BODIES.keys() - {"/api/v1/generate_batch"})
"""What agents are asked for. A batch names a model in each of its requests."""

ITS_OWN = "of-the-rogue"
"""A model that no other agent serves."""

_numbers = count(1)


def test_hostile_agents(watched: Stage) -> None:
    """Another agent dials, and says whatever can be said, to requests that it has or has not."""

    @few
    @given(dials=hostile.dials(ERRANDS))
    def hurt_nobody(dials: list[hostile.Dial]) -> None:
        watched.attack(lambda: Conversation(watched.fleet).hold(dials))

    hurt_nobody()


@pytest.mark.parametrize("kind", hostile.SAID)
def test_what_hostile_agents_say_is_understood(kind: str) -> None:
    """What is tested is what follows from a message, so none of them is refused."""

    @few
    @given(message=hostile.SAID[kind])
    def say(message: dict[str, Any]) -> None:
        assert message["type"] == kind
        messages.decode_from_agent(json.dumps(message))

    say()


def test_little_that_a_schema_allows_is_refused() -> None:
    """What is refused is left out of messages. `hostile.FITTING` has values for such fields."""
    understood: Counter[str] = Counter()
    refused: Counter[str] = Counter()

    @few
    @given(data=st.data(), kind=st.sampled_from(sorted(hostile.OF_SCHEMA)))
    def say(data: st.DataObject, kind: str) -> None:
        try:
            messages.decode_from_agent(json.dumps(data.draw(hostile.OF_SCHEMA[kind])))
            understood[kind] += 1
        except ValidationError as error:
            refused.update(".".join(map(str, each["loc"])) for each in error.errors())

    say()
    assert understood.total() > NUM_EXAMPLES / 2, refused


class Conversation:
    """What one agent does in all of its connections, of which the last ends with the first."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._name = f"fuzzing-{next(_numbers)}"
        """No other conversation has it, so nothing that agents are remembered for matters here."""
        self._id = self._secret = ""
        self._num_ids = 0
        self._rogues: list[RogueAgent] = []

    async def hold(self, dials: list[hostile.Dial]) -> None:
        """All of `dials`; then nobody but the rogue has noticed."""
        fleet = self._fleet
        num_surprises = len(_surprises(fleet))
        [good] = [each["id"] for each in await fleet.view("agents")]
        bystanders = [each for each in await fleet.view("requests") if each["state"] == "streaming"]
        self._words = {hostile.GOOD: good, hostile.OTHERS: bystanders[0]["id"]}
        asking: list[asyncio.Task[None]] = []
        try:
            async with AsyncExitStack() as stack:
                for dial in dials:
                    await self._dial(dial, stack, asking)
        finally:
            for task in asking:
                task.cancel()
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
        wrong = [each for each in outcomes if isinstance(each, Exception)]
        assert not wrong, wrong
        await self._is_as_ever(good)
        surprises = _surprises(fleet)[num_surprises:]
        assert not surprises, "\n".join(line[:6000] for line in surprises[:3])

    async def _dial(
        self, dial: hostile.Dial, stack: AsyncExitStack, asking: list[asyncio.Task[None]]
    ) -> None:
        rogue = await stack.enter_async_context(RogueAgent.connect(self._fleet))
        self._rogues.append(rogue)
        with suppress(ConnectionClosed):
            if dial.role is not None and await self._is_let_in(rogue, dial):
                if dial.role == "same":
                    async with self._drained():
                        await self._ask(dial, asking)
                else:
                    await self._ask(dial, asking)
            for number, step in enumerate(dial.steps):
                await self._say(rogue, step, number)
        if dial.hangs_up:
            stack.push_async_callback(rogue.socket.close)

    async def _is_let_in(self, rogue: RogueAgent, dial: hostile.Dial) -> bool:
        """Says hello as `dial` has it."""
        more: dict[str, Any] = {}
        if dial.as_whom == "new" or not self._id:
            self._num_ids += 1
            self._id, self._secret = f"id-{self._num_ids}-of-{self._name}", ""
        if dial.as_whom == "taking over":
            more["takes_over"] = True
        if self._secret and dial.as_whom != "good":
            more["secret"] = self._secret
        id = self._words[hostile.GOOD] if dial.as_whom == "good" else self._id
        models = {"same": _able(MODEL.stem), "own": _able(ITS_OWN)}
        await rogue.send(
            hello(self._name, agent_id=id, model=models.get(dial.role or "none"), **more)
        )
        answer = await rogue.next("welcome", "reject")
        if answer["type"] == "welcome":
            self._secret = answer["secret"]
        else:
            assert dial.as_whom != "new", answer
        return answer["type"] == "welcome"

    async def _ask(self, dial: hostile.Dial, asking: list[asyncio.Task[None]]) -> None:
        """The errands, each with a moment to come to one of the connections; some have to wait."""
        model = MODEL.stem if dial.role == "same" else ITS_OWN
        for path in dial.errands:
            num_given = self._num_given
            task = asyncio.create_task(self._answer(path, hostile.BODIES[path] | {"model": model}))
            asking.append(task)

            async def is_under_way(task: asyncio.Task[None] = task, num: int = num_given) -> bool:
                return task.done() or self._num_given > num

            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await until(is_under_way)

    @property
    def _num_given(self) -> int:
        return sum(len(rogue.given) for rogue in self._rogues)

    async def _answer(self, path: str, body: dict[str, Any]) -> None:
        """Asks, and reads an answer that may never end; no fault of the balancer's is in it."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        url = self._fleet.inference + path
        async with self._fleet.http.post(url, json=body, timeout=timeout) as response:
            text = await response.text()
            assert '"internal_error"' not in text, (path, text[-2000:])

    @asynccontextmanager
    async def _drained(self) -> AsyncIterator[None]:
        """The good agent gets no requests meanwhile."""
        good = self._words[hostile.GOOD]
        await self._fleet.steer(good, "drain")
        try:
            yield
        finally:
            await self._fleet.steer(good, "resume")

    async def _say(self, rogue: RogueAgent, step: hostile.Sent, number: int) -> None:
        words = self._words | {hostile.ME: self._id or f"id-of-{self._name}"}
        words[hostile.OWN] = rogue.given[number % len(rogue.given)] if rogue.given else "of none"
        data = bytes(step.data)
        for word, meaning in words.items():
            data = data.replace(word.encode(), meaning.encode())
        if step.kind == "none":
            if rogue.socket.state is State.OPEN:
                rogue.socket.transport.write(data)
            return
        for sent in range(step.times):
            await rogue.send_bytes(data, is_text=step.kind == "text")
            if sent % 50 == 49:
                await asyncio.sleep(0)  # this process reads what the bystander gets, too

    async def _is_as_ever(self, good: str) -> None:
        """Only the good agent is there, and serves; everything can be looked at."""

        async def is_alone() -> bool:
            return [each["id"] for each in await self._fleet.view("agents")] == [good]

        await until(is_alone)
        [agent] = await self._fleet.view("agents")
        assert (agent["state"], agent["issues"]) == ("ready", []), (
            f"{agent}\n{self._fleet.agents[0]}\n{self._fleet.balancer}"
        )
        case = plain_cases()[0]
        body = {"model": MODEL.stem} | case.body
        answer = await generate(self._fleet.http, self._fleet.inference, body)
        assert answer.text == case.answer, answer
        for path in ("/health", "/metrics", "/api/v1/agents"):
            async with self._fleet.http.get(f"{self._fleet.management}{path}") as response:
                assert response.status == 200, (path, await response.text())


def _able(name: str) -> dict[str, Any]:
    """A model for everything that can be asked for."""
    return model_info(name, tasks=["generate", "embed", "rank"])
