"""A machine whose steps take what a function of the step says; its clock is simulated.

It runs the newcomer's case: short streams on a cold scheduler, and a long prompt some seconds
later. So what the scheduler does with a machine's costs can be seen without the machine.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from arriero.agent.engine.capacity import Capacity
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Decoded, Step

NEWCOMER = SequenceId(100)
TILE = 64


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a step's parts, on a processor.

    A step has a fixed price, and one for each token. Attention has a price for each pair of a
    token and one before it; tiles, of 64 tokens and more, have a lower one. The engine generates
    for `per_stream` each.
    """

    fixed: float
    per_stream: float
    per_token: float
    per_pair: float
    per_untiled_pair: float

    def __call__(self, step: Step) -> float:
        per_pair = self.per_pair if step.size >= TILE else self.per_untiled_pair
        runs = step.runs[step.num_generating :]
        pairs = sum(len(run.tokens) * (run.start + len(run.tokens) / 2) for run in runs)
        reading = self.per_token * step.num_prompt_tokens + per_pair * pairs
        return self.fixed + self.per_stream * step.num_generating + reading

    def reading_alone(self, num_tokens: int, batch_size: int = 512) -> float:
        """Seconds to read a prompt in whole batches, with nobody beside."""
        num_batches = -(-num_tokens // batch_size)
        pairs = num_tokens * num_tokens / 2
        return self.fixed * num_batches + self.per_token * num_tokens + self.per_pair * pairs


PLAIN = Costs(
    fixed=0.055, per_stream=0.0062, per_token=0.0038, per_pair=2.7e-6, per_untiled_pair=6.8e-6
)
"""A model of 0.6 billion weights on two cores, as measured."""

AMX = Costs(
    fixed=0.028, per_stream=0.004, per_token=0.0015, per_pair=2.7e-6, per_untiled_pair=6.8e-6
)
"""The same with matrix kernels that are 2.5 times as fast: attention has a larger part."""


@dataclass
class Newcomer:
    """What happened."""

    arrived: float = 0.0
    first_token: float = 0.0
    steps: list[tuple[Step, float]] = field(default_factory=list)
    """Those while the newcomer's prompt was read, with their seconds."""
    times: dict[SequenceId, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def waited(self) -> float:
        return self.first_token - self.arrived

    @property
    def longest_gap(self) -> float:
        """Of any stream, while the newcomer's prompt was read."""
        return max(
            later - earlier
            for id, times in self.times.items()
            if id != NEWCOMER
            for earlier, later in pairwise(times)
            if later > self.arrived and earlier <= self.first_token
        )


def run(
    seconds_of: Callable[[Step], float],
    *,
    max_stall: float = 0.5,
    num_streams: int = 7,
    stream_prompt: int = 16,
    stream_tokens: int = 96,
    prompt: int = 1200,
    arrives_after: float = 4.0,
    context_size: int = 2048,
) -> Newcomer:
    """The whole case; ends when the newcomer has its first token."""
    scheduler = Scheduler(
        slots=num_streams + 1,
        context_size=context_size,
        max_stall=max_stall,
        end_tokens=frozenset(),
        capacity=Capacity(
            batch_size=512,
            most_mixed=TILE - 1,
            num_cells=(num_streams + 1) * context_size,
            num_holders=64,
            can_share=True,
            can_shift=True,
            most_parked=10_000,
            is_compact=True,
        ),
    )
    seen, now = Newcomer(), 0.0
    for number in range(num_streams):
        scheduler.add(_new(SequenceId(number), stream_prompt, stream_tokens))
    while not seen.first_token:
        if not seen.arrived and (now >= arrives_after or scheduler.is_idle):
            scheduler.add(_new(NEWCOMER, prompt, 8))
            seen.arrived = now = max(now, arrives_after)
        step = scheduler.plan()
        assert step is not None
        seconds = seconds_of(step)
        now += seconds
        if seen.arrived:
            seen.steps.append((step, seconds))
        tokens = (7,) * sum(run.samples for run in step.runs)
        for output in scheduler.commit(step, Decoded(tokens), seconds):
            seen.times[output.id].append(now)
            if output.id == NEWCOMER:
                seen.first_token = now
    return seen


def _new(id: SequenceId, length: int, max_tokens: int) -> NewSequence:
    return NewSequence(
        id=id,
        prompt=Prompt((id,) * length),
        max_tokens=max_tokens,
        sampling=Sampling(seed=0, temperature=0),
    )
