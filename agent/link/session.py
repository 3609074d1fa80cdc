"""One balancer's session with this agent: messages and outcomes in, decisions out.

Start → prepare → run → pieces → end, for as many requests at once as the agent has free slots.
A request with `save_cache` ends when its save is written, so that whoever asks next finds it.
Invariants: every `Start` on a live connection is answered exactly once, with `Ended`, `Refused` or
`Busy`, and nothing comes after; each request that was not answered yet holds one slot, and besides
only a save does that goes on without its connection; a sequence is being prepared or in the engine
exactly as long as its request is neither answered nor being saved.

Every method answers with what to do about the event, in order. A session outlives its connections:
after `Close` or `disconnected` it is offline, with nothing held, until `connected`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from pydantic import ValidationError

from ...shared.errors import InvalidRequest, RequestError, ShuttingDown, to_wire
from ...shared.inference import GenerateRequest, Notice, Rates, RequestId, Usage
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
from ..engine.writers import Writers
from .answer import Answer, noticed
from .decisions import (
    Abandon,
    Close,
    Decision,
    Drop,
    Finish,
    GiveUp,
    MarkConnected,
    Prepare,
    Run,
    Save,
    Send,
)
from .pulse import Pulse
from .slots import Slots

HANDSHAKE_TIMEOUT = 10.0
"""Longest wait for the answer to `Hello`, in seconds."""

_NOT_SAVED = Notice("prompt_cache", "the engine failed before the prompt could be saved")


@dataclass(slots=True)
class _Active:
    """A request that holds a slot; without an answer as long as it is being prepared.

    `ended` is its answer's end, which is told once it `is_saving` no longer.
    """

    start: Start
    answer: Answer | None = None
    ended: Ended | None = None
    is_saving: bool = False


class Session:
    """`sequence_ids`, `slots` and `writers` are shared with the agent's other sessions."""

    def __init__(
        self,
        *,
        hello: Hello,
        status: Status,
        slots: Slots,
        writers: Writers,
        sequence_ids: Iterator[SequenceId],
        piece: Callable[[int], bytes],
    ) -> None:
        """`status` is what is sent when it says more than `hello`; `piece`: a token's bytes."""
        self._hello = hello
        self._status = status
        self._statistics: Statistics | None = None
        self._slots = slots
        self._writers = writers
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
        """Requests that hold a slot, those included that are only being saved."""
        return len(self._active)

    # ---- the connection

    def connected(self, now: float) -> list[Decision]:
        """There is a new connection."""
        self._state = "greeting"
        self._pulse = Pulse(now, interval=float("inf"), timeout=HANDSHAKE_TIMEOUT)
        return [self._send(self._hello, now)]

    def disconnected(self) -> list[Decision]:
        """The connection is gone: drop what it asked for."""
        decisions: list[Decision] = [
            self._release(id) for id, each in list(self._active.items()) if not each.is_saving
        ]
        self._sequences.clear()
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
        key = _saves_as(start.request)
        if key is not None and not self._writers.claim(key):
            self._slots.free()
            return [self._output([_key_is_taken(start.id, key)], now)]
        id = next(self._sequence_ids)
        self._active[id] = _Active(start)
        self._sequences[start.id] = id
        return [Prepare(id, start.request)]

    def _cancelled(self, request_id: RequestId, now: float) -> list[Decision]:
        id = self._sequences.get(request_id)
        if id is None:
            return []
        active = self._active[id]
        if active.ended is not None:
            return []  # it has ended already, and says so when it is saved
        answer = active.answer
        ended = _never_ran(request_id) if answer is None else answer.cancel()
        release = self._release(id)
        return self._settle([self._output([ended], now), release])

    # ---- what becomes of requests

    def prepared(self, id: SequenceId, prepared: Prepared, now: float) -> list[Decision]:
        """A preparation succeeded; ignored when nobody waits for it."""
        active = self._active.get(id)
        if active is None or active.answer is not None:
            return []
        request = active.start.request
        active.answer = Answer(active.start.id, prepared, self._piece)
        sequence = NewSequence(
            id=id,
            prompt=prepared.prompt,
            max_tokens=prepared.max_tokens,
            sampling=prepared.sampling,
            priority=request.priority,
            shift=prepared.shift,
            prefill_only=request.prefill_only,
            stored=prepared.stored,
            save_as=_saves_as(request),
        )
        notices = [noticed(active.start.id, each) for each in prepared.notices]
        told: list[Decision] = [self._output(notices, now)] if notices else []
        return [*told, Run(sequence)]

    def preparation_failed(self, id: SequenceId, error: RequestError, now: float) -> list[Decision]:
        """A preparation failed; ignored when nobody waits for it."""
        active = self._active.get(id)
        if active is None or active.answer is not None:
            return []
        self._forget(id)
        refused = Refused(id=active.start.id, error=to_wire(error))
        return self._settle([self._output([refused], now)])

    def stepped(self, outputs: Sequence[SequenceOutput], now: float) -> list[Decision]:
        """The engine made a step; outputs of sequences that are not this session's are ignored."""
        items: list[Item] = []
        further: list[Decision] = []
        for output in outputs:
            active = self._active.get(output.id)
            if active is None or active.answer is None or active.is_saving:
                continue
            if active.ended is None:
                items += active.answer.take(output)
            if active.answer.is_over:
                further += self._over(active, output, items)
        told: list[Decision] = [self._output(items, now)] if items else []
        return self._settle(told + further) if told or further else []

    def saved(self, id: SequenceId, failure: Notice | None, now: float) -> list[Decision]:
        """A save was written, or was not; whoever still waits for its end is told."""
        active = self._active[id]
        is_awaited = self._sequences.get(active.start.id) == id
        self._forget(id)
        if active.ended is None or not is_awaited:
            return []
        notices = [] if failure is None else [noticed(active.start.id, failure)]
        return self._settle([self._output([*notices, active.ended], now)])

    def _over(self, active: _Active, output: SequenceOutput, items: list[Item]) -> list[Decision]:
        """The answer is complete. From `items` an end is taken that has to wait for a save."""
        key = _saves_as(active.start.request)
        if active.ended is None and key is not None and isinstance(end := items[-1], Ended):
            active.ended = end
            items.pop()
            if output.end is None:
                return [Finish(output.id)]
        if key is None or active.ended is None:
            self._forget(output.id)
            return [] if output.end else [Drop(output.id)]
        if output.end is None:
            return []  # of what follows a stop string
        if output.end.saved is not None:
            active.is_saving = True
            return [Save(output.id, key, output.end.saved)]
        items += [noticed(active.start.id, _NOT_SAVED), active.ended]
        self._forget(output.id)
        return []

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
        ends: list[Item] = [
            self._active[id].ended or Refused(id=request_id, error=wire)
            for request_id, id in self._sequences.items()
        ]
        sends: list[Decision] = [self._output(ends, now)] if ends else []
        return sends + self._leave(error.message)

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        awaited = set(self._sequences.values())
        if any(self._active[id].start.id != name for name, id in self._sequences.items()):
            raise RuntimeError("requests and sequences do not match")
        if any(id not in awaited and not each.is_saving for id, each in self._active.items()):
            raise RuntimeError("a request that nobody waits for goes on")
        if self._sequences and not self.is_live:
            raise RuntimeError("requests are held without a live connection")
        if (self._pulse is None) != self.is_offline:
            raise RuntimeError("a pulse without a connection, or the other way round")
        if self.num_active > self._slots.num_busy:
            raise RuntimeError("more requests are active than slots are busy")

    def _settle(self, decisions: list[Decision]) -> list[Decision]:
        if self._drain_deadline is None or self._sequences:
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
        start = self._active.pop(id).start
        if self._sequences.get(start.id) == id:
            del self._sequences[start.id]
        self._slots.free()
        if (key := _saves_as(start.request)) is not None:
            self._writers.release(key)

    def _output(self, items: Sequence[Item], now: float) -> Send:
        return self._send(Output(items=tuple(items)), now)

    def _send(self, message: Hello | Status | Statistics | Output | Heartbeat, now: float) -> Send:
        if self._pulse is not None:
            self._pulse.sent(now)
        return Send(message)


def _saves_as(request: GenerateRequest) -> str | None:
    return request.cache_key if request.save_cache else None


def _key_is_taken(id: RequestId, key: str) -> Refused:
    message = f"`save_cache`: a request that runs will save under the key {key!r}; wait for its end"
    return Refused(id=id, error=to_wire(InvalidRequest(message, field="save_cache")))


def _never_ran(id: RequestId) -> Ended:
    return Ended(id=id, finish_reason="cancelled", usage=Usage(), rates=Rates())
