"""A simulated agent whose steps are planned by an engine's own scheduler, in virtual time.

What a step takes is a function of what is in it: prompt tokens by the rate of prefill, and for
generating a fixed price, one for each sequence, and one for each token before it. Chunks of
prompts, the turns that prefill and generation take, prefixes, preemption and the slots are decided
as on a real host. Hosts may share a machine, and then slow each other down: a host's `next_change`
depends on what the others do.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from arriero.agent.engine.capacity import Capacity
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceEnd, SequenceId, SequenceOutput
from arriero.agent.engine.step import Decoded, Step
from arriero.shared.inference import ChatMessage, GenerateRequest, Rates, RequestId, Usage
from arriero.shared.messages import Ended, Item, Piece, PromptRead, Start
from bench.routing.host import Speeds, prefixes_of
from bench.simulation.fluid_host import STALL
from bench.simulation.machine import READING, Machine

BATCH = 512
MOST_MIXED = 63
PREFIXES = 250
"""Numbers for cached prefixes: the cells run out before them."""

_TOKEN = 7
"""What every answer says; no end token."""


@dataclass(slots=True)
class _Running:
    id: RequestId
    was_read: bool = False


@dataclass(slots=True)
class _Underway:
    """A step, since when, and what the machine's clock of this kind shows when it ends."""

    step: Step
    begun_at: float
    kind: int
    until: float


@dataclass(slots=True)
class ScheduledHost:
    """Time passes by `advance`, which gives what came of it; `next_change` says when to call it."""

    speeds: Speeds
    slots: int
    cache: int
    """Cells."""
    machine: Machine = field(default_factory=Machine)
    streams: int = 0
    """The number of equal caches, of which each sequence has one; 0: all share one cache."""
    running: dict[RequestId, SequenceId] = field(default_factory=dict)
    num_computed: float = 0.0
    """Tokens of prompts that were computed, those computed again included."""
    _by_sequence: dict[SequenceId, _Running] = field(default_factory=dict)
    _inbox: deque[NewSequence] = field(default_factory=deque)
    _underway: _Underway | None = None
    _numbers: "count[int]" = field(default_factory=count)
    _scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(
            slots=self.slots,
            context_size=self.cache // self.slots,
            max_stall=STALL,
            end_tokens=frozenset(),
            capacity=Capacity(
                batch_size=BATCH,
                most_mixed=MOST_MIXED,
                num_cells=self.cache,
                num_holders=self.slots + PREFIXES,
                num_streams=self.streams,
                can_share=True,
                can_shift=True,
                most_parked=0,
                is_compact=True,
            ),
        )

    def start(self, start: Start, now: float) -> None:
        """Take a request; it is let in before the next step."""
        id = SequenceId(next(self._numbers))
        prompt = _prompt_of(start.request)
        said = start.continuation.tokens if start.continuation else ()
        self.running[start.id] = id
        self._by_sequence[id] = _Running(start.id)
        sequence = NewSequence(
            id=id,
            prompt=Prompt(prompt),
            max_tokens=start.request.max_tokens or 1,
            sampling=Sampling(seed=0, temperature=0),
            said=tuple(said),
        )
        self._inbox.append(sequence)
        self._go_on(now)

    def next_change(self) -> float | None:
        """When the step that is computed ends; `None` while idle."""
        step = self._underway
        return None if step is None else self.machine.due(step.kind, step.until)

    def advance(self, now: float) -> list[Item]:
        """What happened until `now`, which is not after the next change."""
        done = self._underway
        if done is None or not self.machine.has_come(done.kind, done.until, now):
            return []
        self._underway = None
        self.machine.end(now)
        chosen = (_TOKEN,) * sum(run.samples for run in done.step.runs)
        self.num_computed += done.step.num_prompt_tokens
        outputs = self._scheduler.commit(done.step, Decoded(chosen), now - done.begun_at)
        items = [item for output in outputs for item in self._items(output)]
        self._go_on(now)
        return items

    def unsent(self) -> list[Item]:
        """Nothing is left to send: each step's tokens are sent when it ends."""
        return []

    def _go_on(self, now: float) -> None:
        """Let in what came meanwhile, and begin the next step, unless one is computed."""
        if self._underway is not None:
            return
        while self._inbox:
            self._scheduler.add(self._inbox.popleft())
        if (step := self._scheduler.plan()) is not None:
            kind = READING if step.num_prompt_tokens > MOST_MIXED else step.num_generating
            until = self.machine.begin(kind, self._seconds_of(step), now)
            self._underway = _Underway(step, now, kind, until)

    def _seconds_of(self, step: Step) -> float:
        speeds = self.speeds
        reading = step.num_prompt_tokens / speeds.prefill
        if not step.num_generating:
            return reading
        generating = step.runs[: step.num_generating]
        passed = speeds.depth * sum(run.start for run in generating)
        return reading + speeds.step + speeds.sequence * step.num_generating + passed

    def _items(self, output: SequenceOutput) -> list[Item]:
        one = self._by_sequence.get(output.id)
        if one is None or output.num_read is not None:
            return []
        items: list[Item] = []
        stats = output.end.stats if output.end else output.stats
        if not one.was_read and stats is not None:
            one.was_read = True
            items.append(
                PromptRead(
                    id=one.id,
                    prompt_tokens=stats.prompt_tokens,
                    cached_tokens=stats.cached_tokens,
                )
            )
        if output.tokens:
            items.append(Piece(id=one.id, text="x" * len(output.tokens), tokens=output.tokens))
        if output.end is not None:
            items.append(_ended(one.id, output.end))
            del self._by_sequence[output.id], self.running[one.id]
        return items


def _prompt_of(request: GenerateRequest) -> tuple[int, ...]:
    if isinstance(request.prompt, str):
        raise TypeError("prompts are tokens or messages here")
    return tuple(request.prompt) if request.prompt else tokens_of(request.messages or ())


def tokens_of(messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
    """Ids for the messages: the same beginnings have the same ones."""
    prefixes, lengths = prefixes_of(messages)
    return tuple(
        1000 + (hash(prefix) + place * 104_729) % 20_000
        for prefix, length in zip(prefixes, lengths, strict=True)
        for place in range(length)
    )


def _ended(id: RequestId, end: SequenceEnd) -> Item:
    if not isinstance(end.reason, str):
        raise RuntimeError(f"request {id} ended with {end.reason}")
    stats = end.stats
    usage = Usage(
        prompt_tokens=stats.prompt_tokens,
        cached_tokens=stats.cached_tokens,
        completion_tokens=stats.completion_tokens,
    )
    return Ended(id=id, finish_reason="length", usage=usage, rates=_rates(end))


def _rates(end: SequenceEnd) -> Rates:
    stats = end.stats
    return Rates(
        prefill_tokens_per_second=_rate(stats.prefill_tokens, stats.prefill_seconds),
        decode_tokens_per_second=_rate(stats.completion_tokens, stats.decode_seconds),
    )


def _rate(num: int, seconds: float | None) -> float | None:
    return num / seconds if seconds else None
