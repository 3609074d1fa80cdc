"""One balancer's session with this agent: messages and outcomes in, decisions out.

Start → prepare → run → pieces → end, for as many requests at once as the agent has free slots.
Invariants: every `Start` on a live connection is answered exactly once, with `Ended`, `Refused` or
`Busy`, and nothing comes after; each request that was not answered yet holds one slot, and nothing
else does; a sequence is in the engine, or being prepared, exactly as long as its request holds one.

Every method answers with what to do about the event, in order. A session outlives its connections:
after `Close` or `disconnected` it is offline, with nothing held, until `connected`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from pydantic import ValidationError

from ...shared.errors import RequestError, ShuttingDown, to_wire
from ...shared.inference import Rates, RequestId, Usage
from ...shared.messages import (
    PROTOCOL_VERSION,
    Busy,
    Cancel,
    Ended,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Item,
    Output,
    Refused,
    Reject,
    Start,
    Statistics,
    Status,
    Welcome,
    decode_from_balancer,
)
from ...shared.validation import invalid
from ..chat.prepared import Prepared
from ..engine.sequence import NewSequence, SequenceId, SequenceOutput
from .answer import Answer
from .decisions import (
    Abandon,
    Close,
    Decision,
    Drop,
    GiveUp,
    MarkConnected,
    Prepare,
    Run,
    Send,
)
from .pulse import Pulse
from .slots import Slots

HANDSHAKE_TIMEOUT = 10.0
"""Longest wait for the answer to `Hello`, in seconds."""


@dataclass(slots=True)
class _Active:
    """A request that holds a slot; without an answer as long as it is being prepared."""

    start: Start
    answer: Answer | None = None


class Session:
    """`sequence_ids` and `slots` are shared with the sessions of the agent's other balancers."""

    def __init__(
        self,
        *,
        hello: Hello,
        status: Status,
        slots: Slots,
        sequence_ids: Iterator[SequenceId],
        piece: Callable[[int], bytes],
    ) -> None:
        """`status` is what is sent when it says more than `hello`; `piece`: a token's bytes."""
        self._hello = hello
        self._status = status
        self._statistics: Statistics | None = None
        self._slots = slots
        self._sequence_ids = sequence_ids
        self._piece = piece
        self._state: Literal["offline", "greeting", "live"] = "offline"
        self._pulse: Pulse | None = None
        self._drain_deadline: float | None = None
        self._was_busy = False
        self._active: dict[SequenceId, _Active] = {}
        self._sequences: dict[RequestId, SequenceId] = {}

    @property
    def is_live(self) -> bool:
        """Whether the balancer has let the agent in."""
        return self._state == "live"

    @property
    def is_offline(self) -> bool:
        """Whether there is no connection, as far as the session is concerned."""
        return self._state == "offline"

    @property
    def num_active(self) -> int:
        """Requests that hold a slot."""
        return len(self._active)

    # ---- the connection

    def connected(self, now: float) -> list[Decision]:
        """There is a new connection."""
        self._state = "greeting"
        self._pulse = Pulse(now, interval=float("inf"), timeout=HANDSHAKE_TIMEOUT)
        return [self._send(self._hello, now)]

    def disconnected(self) -> list[Decision]:
        """The connection is gone: drop what it asked for."""
        decisions: list[Decision] = [self._release(id) for id in list(self._active)]
        self._state = "offline"
        self._pulse = None
        self._was_busy = False
        return decisions

    def next_deadline(self) -> float | None:
        """When to call `tick`, at the latest."""
        if self._pulse is None:
            return None
        deadline = self._pulse.next_deadline()
        return deadline if self._drain_deadline is None else min(deadline, self._drain_deadline)

    def tick(self, now: float) -> list[Decision]:
        """Time went by."""
        if self._pulse is None:
            return []
        if self._pulse.is_lost(now):
            return self._leave(f"the balancer was silent for {self._pulse.timeout:g} s")
        if self._drain_deadline is not None and now >= self._drain_deadline:
            return self.fail(ShuttingDown("the agent stopped before the answer was complete"), now)
        return [self._send(Heartbeat(), now)] if self._pulse.is_due(now) else []

    # ---- what the balancer says

    def read(self, frame: str | bytes, now: float) -> list[Decision]:
        """The balancer sent a frame. After one that is no message, nothing can be relied on."""
        try:
            message = decode_from_balancer(frame)
        except ValidationError as error:
            finding = invalid(error, frame).message
            return [] if self.is_offline else self._leave(f"the balancer's frame: {finding}")
        return self.received(message, now)

    def received(self, message: FromBalancer, now: float) -> list[Decision]:
        """The balancer said something; on a connection that is over, nothing comes of it."""
        if self._pulse is None:
            return []
        self._pulse.heard(now)
        match message:
            case Welcome():
                return self._welcomed(message, now)
            case Reject(reason=reason, retry=retry):
                return self._rejected(reason, retry)
            case Heartbeat() | Goodbye():
                # After a goodbye the balancer lets running requests finish and closes by itself.
                return []
            case Start() | Cancel() if not self.is_live:
                return self._leave(f"the balancer sent `{message.type}` before `welcome`")
            case Start():
                return self._started(message, now)
            case Cancel(id=id):
                return self._cancelled(id, now)
            case _:
                assert_never(message)

    def _welcomed(self, message: Welcome, now: float) -> list[Decision]:
        if self.is_live:
            return self._leave("the balancer sent `welcome` twice")
        if message.protocol != PROTOCOL_VERSION:
            return self._give_up(
                f"the balancer speaks version {message.protocol} of the agent protocol and this "
                f"agent version {PROTOCOL_VERSION}; install the same release on both"
            )
        self._state = "live"
        self._pulse = Pulse(
            now, interval=message.heartbeat_interval, timeout=message.heartbeat_timeout
        )
        decisions: list[Decision] = [MarkConnected()]
        if self._status.issues:
            decisions.append(self._send(self._status, now))
        if self._statistics is not None:
            decisions.append(self._send(self._statistics, now))
        return decisions

    def _rejected(self, reason: str, retry: bool) -> list[Decision]:
        return self._leave(reason) if retry else self._give_up(reason)

    def _started(self, start: Start, now: float) -> list[Decision]:
        if start.id in self._sequences:
            return self._leave(f"the balancer started request {start.id} twice")
        if self._drain_deadline is not None or not self._slots.take():
            self._was_busy = True
            return [self._output([Busy(id=start.id)], now)]
        id = next(self._sequence_ids)
        self._active[id] = _Active(start)
        self._sequences[start.id] = id
        return [Prepare(id, start.request)]

    def _cancelled(self, request_id: RequestId, now: float) -> list[Decision]:
        id = self._sequences.get(request_id)
        if id is None:
            return []
        answer = self._active[id].answer
        ended = _never_ran(request_id) if answer is None else answer.cancel()
        release = self._release(id)
        return self._settle([self._output([ended], now), release])

    # ---- what becomes of requests

    def prepared(self, id: SequenceId, prepared: Prepared) -> list[Decision]:
        """A preparation succeeded; ignored when its request is over."""
        active = self._active.get(id)
        if active is None:
            return []
        active.answer = Answer(active.start.id, prepared, self._piece)
        sequence = NewSequence(
            id=id,
            prompt=prepared.prompt,
            max_tokens=prepared.max_tokens,
            sampling=prepared.sampling,
            priority=active.start.request.priority,
            shift=prepared.shift,
            prefill_only=active.start.request.prefill_only,
        )
        return [Run(sequence)]

    def preparation_failed(self, id: SequenceId, error: RequestError, now: float) -> list[Decision]:
        """A preparation failed; ignored when its request is over."""
        active = self._active.get(id)
        if active is None:
            return []
        self._forget(id)
        refused = Refused(id=active.start.id, error=to_wire(error))
        return self._settle([self._output([refused], now)])

    def stepped(self, outputs: Sequence[SequenceOutput], now: float) -> list[Decision]:
        """The engine made a step; outputs of sequences that are not this session's are ignored."""
        items: list[Item] = []
        drops: list[Decision] = []
        for output in outputs:
            active = self._active.get(output.id)
            if active is None or active.answer is None:
                continue
            items += active.answer.take(output)
            if active.answer.is_over:
                self._forget(output.id)
                if output.end is None:
                    drops.append(Drop(output.id))
        if not items:
            return []
        return self._settle([self._output(items, now), *drops])

    def slots_changed(self, now: float) -> list[Decision]:
        """A slot may have become free: a balancer that was told `Busy` is told to try again."""
        if not self._was_busy or self._slots.num_free == 0 or self._drain_deadline is not None:
            return []
        self._was_busy = False
        return [self._send(self._status, now)]

    def tell(self, issues: tuple[Issue, ...], now: float) -> list[Decision]:
        """What keeps the agent from its work has changed."""
        self._status = replace(self._status, issues=issues)
        return [self._send(self._status, now)] if self.is_live else []

    def report(self, statistics: Statistics, now: float) -> list[Decision]:
        """What the engine did; a balancer that lets the agent in later hears of it then."""
        self._statistics = statistics
        return [self._send(statistics, now)] if self.is_live else []

    # ---- the end

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Take nothing new, let what runs go on until `deadline`, then leave for good."""
        self._drain_deadline = deadline
        self._status = replace(self._status, accepting=False)
        if not self.is_live:
            return [] if self.is_offline else self._leave("the agent is shutting down")
        return self._settle([self._send(self._status, now)])

    def fail(self, error: RequestError, now: float) -> list[Decision]:
        """Nothing can go on: answer every request with `error` and leave."""
        if self.is_offline:
            return []
        wire = to_wire(error)
        refused: list[Item] = [Refused(id=each, error=wire) for each in self._sequences]
        sends: list[Decision] = [self._output(refused, now)] if refused else []
        return sends + self._leave(error.message)

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        by_request = {active.start.id: id for id, active in self._active.items()}
        if by_request != self._sequences:
            raise RuntimeError("requests and sequences do not match")
        if self._active and not self.is_live:
            raise RuntimeError("requests are held without a live connection")
        if (self._pulse is None) != self.is_offline:
            raise RuntimeError("a pulse without a connection, or the other way round")
        if self.num_active > self._slots.num_busy:
            raise RuntimeError("more requests are active than slots are busy")

    def _settle(self, decisions: list[Decision]) -> list[Decision]:
        if self._drain_deadline is None or self._active:
            return decisions
        return decisions + self._leave("the agent is shutting down")

    def _leave(self, reason: str) -> list[Decision]:
        return [*self.disconnected(), Close(reason)]

    def _give_up(self, reason: str) -> list[Decision]:
        return [*self.disconnected(), GiveUp(reason)]

    def _release(self, id: SequenceId) -> Abandon | Drop:
        is_running = self._active[id].answer is not None
        self._forget(id)
        return Drop(id) if is_running else Abandon(id)

    def _forget(self, id: SequenceId) -> None:
        del self._sequences[self._active.pop(id).start.id]
        self._slots.free()

    def _output(self, items: Sequence[Item], now: float) -> Send:
        return self._send(Output(items=tuple(items)), now)

    def _send(self, message: Hello | Status | Statistics | Output | Heartbeat, now: float) -> Send:
        if self._pulse is not None:
            self._pulse.sent(now)
        return Send(message)


def _never_ran(id: RequestId) -> Ended:
    return Ended(id=id, finish_reason="cancelled", usage=Usage(), rates=Rates())
