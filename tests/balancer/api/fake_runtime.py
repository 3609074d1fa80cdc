"""A fleet runtime without a fleet: tests play the agents, and see what the APIs opened and closed.

A request is answered by `script` if there is one, else by what the test `say`s to its stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Self

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.admission import priority_within
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.requests.eligibility import Engine
from arriero.balancer.fleet.runtime.stream import Outcome, QueryHandle, Sink
from arriero.balancer.fleet.view import NO_STANDING, FleetTotals, ModelView, Standing
from arriero.shared.errors import Cancelled, RequestError
from arriero.shared.inference import (
    Done,
    Event,
    Failed,
    GenerateRequest,
    RequestId,
    Timings,
    Token,
    Usage,
)
from arriero.shared.reports.model_info import ModelInfo, Task

TIMINGS = Timings(queue_ms=1.0, first_token_ms=2.0, total_ms=3.0, decode_tokens_per_second=50.0)


def done(reason: str = "stop", prompt: int = 7, completion: int = 2, cached: int = 0) -> Done:
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)
    return Done(reason, usage, TIMINGS, "agent-1")


class FakeStream:
    """Ends once, however it ends: an end event, a cancel, or its reader closing it."""

    def __init__(self, id: RequestId, request: GenerateRequest, changed: asyncio.Event) -> None:
        self.id = id
        self.created_at = 1_700_000_000.5
        self.model = ""
        self.request = request
        self.is_closed_early = False
        self.has_ended = False
        self.num_delivered = 0
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self._changed = changed
        self._sink: Sink | None = None

    def say(self, *events: Event) -> None:
        for event in events:
            if self.has_ended or self.is_closed_early:
                raise AssertionError(f"{event} for a request that is over")
            self._waiting.append(event)
            self.has_ended = isinstance(event, Done | Failed)
        self._news.set()
        if self._sink is not None:
            self.pass_on_to(self._sink)

    def pass_on_to(self, sink: Sink) -> None:
        self._sink = sink
        while self._waiting:
            sink.put(self._waiting.popleft())
            self.num_delivered += 1

    def cancel(self) -> None:
        has_run = self.num_delivered or self._waiting
        self.say(done("cancelled") if has_run else Failed(Cancelled("cancelled before it ran")))

    async def __aiter__(self) -> AsyncIterator[Event]:
        while self._waiting or not self.has_ended:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            event = self._waiting.popleft()
            self.num_delivered += 1
            self._changed.set()
            yield event

    async def push(
        self, take: Callable[[Event], bool], drained: Callable[[], Awaitable[None]]
    ) -> None:
        async for event in self:
            if not take(event):
                await drained()

    def close(self) -> None:
        if not self.has_ended:
            self.is_closed_early = True
            self._changed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeFleetRuntime:
    def __init__(self, script: Callable[[GenerateRequest], Iterable[Event]] | None = None) -> None:
        self.script = script
        self.streams: list[FakeStream] = []
        self.resumed: list[tuple[tuple[Event, ...], Engine | None, float]] = []
        self.callers: list[Caller] = []
        self.refusals: list[RequestError | None] = []
        self.answers: Callable[[QueryRequest], Outcome] | None = None
        self.questions: list[QueryRequest] = []
        self.inquiries: list[QueryHandle] = []
        self.withdrawn: list[RequestId] = []
        self.tell_waiting: list[float | None] = []
        self.kept_log_probs: list[int] = []
        self.model_names = ["demo"]
        self.unloaded: set[str] = set()
        self.slots_total = 4
        self.is_draining = False
        self.changed = asyncio.Event()

    @property
    def views(self) -> "FakeFleetRuntime":
        return self

    def standing(self, _caller: Caller) -> Standing:
        return NO_STANDING

    def open(
        self,
        request: GenerateRequest,
        id: RequestId | None = None,
        *,
        caller: Caller = ANONYMOUS,
        tell_waiting: float | None = None,
        together: int = 1,
        kept_log_prob: int = 0,
    ) -> FakeStream:
        self.callers.append(caller)
        self.kept_log_probs.append(kept_log_prob)
        self.tell_waiting.append(tell_waiting)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        given = RequestId(f"req-{len(self.streams)}") if id is None else id
        stream = FakeStream(given, request, self.changed)
        self.streams.append(stream)
        self.changed.set()
        if self.script is not None:
            stream.say(*self.script(request))
        return stream

    def open_into(
        self,
        sink: Sink,
        request: GenerateRequest,
        *,
        caller: Caller = ANONYMOUS,
        tell_waiting: float | None = None,
        together: int = 1,
    ) -> None:
        """As `open`; what the stream's test says is put into `sink` at once."""
        stream = self.open(
            request, sink.id, caller=caller, tell_waiting=tell_waiting, together=together
        )
        stream.pass_on_to(sink)

    def seeded(self, request: GenerateRequest) -> GenerateRequest:
        return request

    def resume_request(
        self,
        sink: Sink,
        request: GenerateRequest,
        *,
        caller: Caller,
        delivered: Iterable[Event],
        engine: Engine | None,
        age: float,
    ) -> None:
        self.resumed.append((tuple(delivered), engine, age))
        self.open_into(sink, request, caller=caller)

    def ask(self, query_request: QueryRequest, *, caller: Caller = ANONYMOUS) -> QueryHandle:
        """Answered at once by `answers`, or left to the test."""
        self.callers.append(caller)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        handle = QueryHandle(RequestId(f"q-{len(self.questions)}"), self._withdraw)
        self.questions.append(query_request)
        self.inquiries.append(handle)
        if self.answers is not None:
            handle.settle(self.answers(query_request))
        self.changed.set()
        return handle

    def _withdraw(self, id: RequestId) -> None:
        self.withdrawn.append(id)
        self.changed.set()

    def cancel(self, ids: Iterable[RequestId]) -> int:
        requested = set(ids)
        live = [
            stream for stream in self.streams if stream.id in requested and not stream.has_ended
        ]
        for stream in live:
            stream.cancel()
        return len(live)

    @property
    def num_open(self) -> int:
        return sum(not (s.has_ended or s.is_closed_early) for s in self.streams)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def opened(self, num_streams: int = 1) -> list[FakeStream]:
        await self.until(lambda: len(self.streams) >= num_streams)
        return self.streams

    def totals(self) -> FleetTotals:
        return FleetTotals(**self._totals())

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None:
        return next((view for view in self.models(caller) if view.info.name == name), None)

    def models(self, caller: Caller = ANONYMOUS) -> tuple[ModelView, ...]:
        allowed = caller.limits.models or self.model_names
        return tuple(
            ModelView(
                info=ModelInfo(
                    name=name, architecture="llama", parameters=1, size_bytes=1, context_size=2048
                ),
                status="unloaded" if name in self.unloaded else "loaded",
            )
            for name in sorted(self.model_names)
            if name in allowed
        )

    def priority(self, request: GenerateRequest, caller: Caller) -> int | None:
        return priority_within(request.priority, caller.limits)

    def model_name_for(self, task: Task | None, caller: Caller = ANONYMOUS) -> str:
        return next((view.info.name for view in self.models(caller)), "")

    def _totals(self) -> dict[str, object]:
        return {
            "num_agents": len(self.model_names),
            "is_ready": self.slots_total > 0,
            "is_draining": self.is_draining,
            "queue_depth": 0,
            "queue_limit": 8,
            "slots_total": self.slots_total,
            "slots_busy": 0,
            "tokens_total": 0,
            "items_ignored": 0,
        }


def echo(request: GenerateRequest) -> list[Event]:
    """Two tokens that repeat what was asked, then the end."""
    asked = request.prompt if request.messages is None else request.messages[-1].text
    return [Token("you said: "), Token(asked or ""), done()]
