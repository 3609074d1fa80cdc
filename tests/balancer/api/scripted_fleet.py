"""The real fleet runtime over agents that answer from a script, in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.identity import NO_LIMITS, CallerLimits
from arriero.balancer.api.app import inference_app
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.view import FleetView
from arriero.shared.inference import FinishReason, GenerateRequest, Rates, RequestId, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Ended,
    FromBalancer,
    Hello,
    Output,
    Piece,
    Start,
)
from arriero.shared.reports.model_info import ModelInfo
from tests.balancer.fleet.recording import RecordingRecorder

MODEL = ModelInfo(name="demo", architecture="llama", parameters=1, size_bytes=1, context_size=2048)


def words(request: GenerateRequest) -> Iterator[str]:
    """Repeats what was asked, word by word; "endless" never ends."""
    asked = request.prompt if request.messages is None else request.messages[-1].text
    while asked == "endless":
        yield "more "
    yield from (f"{word} " for word in (asked or "").split())


class ScriptedAgent:
    """Says one word of each of its requests a turn of the event loop, in one frame."""

    def __init__(self, runtime: FleetRuntime, name: str, slots: int) -> None:
        self._runtime = runtime
        self._running: dict[RequestId, Iterator[str]] = {}
        self.num_words: dict[RequestId, int] = {}
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=name,
            name=name,
            version="1",
            slots=slots,
            model=MODEL,
        )
        self._link = runtime.agent_joined(self, hello)

    def send(self, message: FromBalancer) -> None:
        if isinstance(message, Start):
            if not self._running:
                asyncio.get_running_loop().call_soon(self._step)
            self._running[message.id] = words(message.request)
            self.num_words[message.id] = 0
        elif isinstance(message, Cancel) and message.id in self._running:
            del self._running[message.id]
            asyncio.get_running_loop().call_soon(self._say, self._ended(message.id, "cancelled"))

    def disconnect(self, reason: str) -> None:
        self._running.clear()

    def _step(self) -> None:
        items: list[Piece | Ended] = []
        for id, said in list(self._running.items()):
            word = next(said, None)
            if word is None:
                del self._running[id]
                items.append(self._ended(id, "stop"))
            else:
                self.num_words[id] += 1
                items.append(Piece(id=id, text=word, tokens=(1,)))
        if items:
            self._say(*items)
        if self._running:
            asyncio.get_running_loop().call_soon(self._step)

    def _say(self, *items: Piece | Ended) -> None:
        self._runtime.agent_said(self._link, Output(items=items))

    def _ended(self, id: RequestId, reason: FinishReason) -> Ended:
        usage = Usage(prompt_tokens=3, completion_tokens=self.num_words[id])
        return Ended(id=id, finish_reason=reason, usage=usage, rates=Rates())


@asynccontextmanager
async def scripted_fleet(
    *, slots: int = 2, max_buffered: int = 64, anonymous: CallerLimits = NO_LIMITS
) -> AsyncIterator[tuple[TestClient, FleetRuntime]]:
    """An inference port over two scripted agents with `slots` slots each.

    `anonymous` limits all callers: they are one address. Its time stands still: nothing waits long,
    and no agent is silent, however slow the machine.
    """
    fleet = Fleet(
        Limits(max_buffered_requests=max_buffered, heartbeat_timeout=60, anonymous=anonymous)
    )
    runtime = FleetRuntime(fleet, recorder=RecordingRecorder(), clock=lambda: 0.0, watch_interval=0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(runtime.run())
        for name in ("one", "two"):
            ScriptedAgent(runtime, name, slots)
        async with TestClient(TestServer(inference_app(runtime))) as client:
            yield client, runtime
        running.cancel()


async def until(runtime: FleetRuntime, condition: Callable[[FleetView], bool]) -> FleetView:
    """The first view of which `condition` holds."""
    async for _ in runtime.changes():
        if condition(view := runtime.views.view()):
            return view
    raise AssertionError("the fleet runtime stopped showing views")
