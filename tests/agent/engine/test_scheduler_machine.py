"""The planner under random arrivals, drops, durations and bad steps.

Every sequence ends exactly once with the tokens it would get alone, whatever happens around it;
the engine underneath checks positions, slots, ceilings and capacity at each step.
"""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId, SequenceOutput
from arriero.agent.engine.step import Aborted, Failed, NoRoom, Step
from arriero.shared.errors import EngineFailed
from tests.agent.engine.fake_engine import END_TOKEN, VOCAB_SIZE, FakeEngine, run_alone


class Machine(RuleBasedStateMachine):
    """Random arrivals, drops and bad steps over an engine that checks every rule."""

    context_size = 20
    slots = 3

    def __init__(self) -> None:
        super().__init__()
        self.engine = FakeEngine(
            slots=self.slots, context_size=self.context_size, batch_size=8, num_cells=40
        )
        self.scheduler = Scheduler(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            max_stall=0.5,
            end_tokens=frozenset({END_TOKEN}),
        )
        self.sequences: dict[int, NewSequence] = {}
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, object] = {}
        self.dropped: set[int] = set()
        self.failed: set[int] = set()
        self.joined: list[int] = []
        self.elapsed = 0.01

    @rule(
        length=st.integers(1, 19),
        first=st.integers(1, VOCAB_SIZE - 1),
        max_tokens=st.none() | st.integers(0, 12),
        priority=st.integers(-1, 1),
    )
    def add(self, length: int, first: int, max_tokens: int | None, priority: int) -> None:
        prompt = tuple(1 + (first + i * i) % (VOCAB_SIZE - 1) for i in range(length))
        number = len(self.sequences)
        self.sequences[number] = NewSequence(
            id=SequenceId(number),
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=Sampling(seed=0, temperature=0),
            priority=priority,
        )
        self.scheduler.add(self.sequences[number])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sequences)))
        self.scheduler.drop(SequenceId(number))
        self.dropped.add(number)

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.4, 3.0]))
    def clock(self, seconds: float) -> None:
        self.elapsed = seconds

    @rule(count=st.integers(1, 6))
    def good_steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @precondition(lambda self: not self.scheduler.is_idle)
    @rule(outcome=st.sampled_from([NoRoom(), Aborted(), Failed("no")]))
    def bad_step(self, outcome: Failed | Aborted | NoRoom) -> None:
        self.engine.fail_next(outcome)
        self.step()
        self.engine.fail_no_more()

    def step(self) -> None:
        waiting = self.waiting()
        step = self.scheduler.plan()
        if step is None:
            return
        self.check_order(step, waiting)
        outcome = self.engine.execute(step)
        if isinstance(outcome, Failed) or (isinstance(outcome, NoRoom) and len(step.runs) == 1):
            self.failed |= {run.id for run in step.runs}
        for output in self.scheduler.commit(step, outcome, self.elapsed):
            self.take(output)
        self.scheduler.check_integrity()

    def take(self, output: SequenceOutput) -> None:
        assert output.id not in self.ends, "something after the end"
        assert output.id not in self.dropped, "something after the drop"
        self.tokens[output.id] += output.tokens
        if output.end is not None:
            self.ends[output.id] = output.end.reason
            assert output.end.stats.completion_tokens == len(self.tokens[output.id])

    def waiting(self) -> list[int]:
        return [
            number
            for number, one in self.sequences.items()
            if number not in {*self.ends, *self.dropped, *self.failed, *self.joined}
            and one.max_tokens != 0
        ]

    def check_order(self, step: Step, waiting: list[int]) -> None:
        """Those that join for the first time are the best of those that waited."""
        joining = [run.id for run in step.runs if run.id not in self.joined]
        rank = {n: (-self.sequences[n].priority, n) for n in waiting}
        assert (
            sorted(joining, key=rank.__getitem__)
            == sorted(waiting, key=rank.__getitem__)[: len(joining)]
        )
        self.joined += joining

    @invariant()
    def prefixes_of_the_run_alone_tokens(self) -> None:
        self.scheduler.check_integrity()
        for number, tokens in self.tokens.items():
            alone, _ = run_alone(self.sequences[number], self.context_size)
            assert tuple(tokens) == alone[: len(tokens)]

    def teardown(self) -> None:
        self.engine.num_cells = self.slots * self.context_size
        for _ in range(10_000):
            if self.scheduler.is_idle:
                break
            self.step()
        assert self.scheduler.is_idle, "it never comes to rest"
        for number, sequence in self.sequences.items():
            if number in self.dropped:
                continue
            reason = self.ends[number]
            if isinstance(reason, EngineFailed):
                assert number in self.failed
            else:
                expected = run_alone(sequence, self.context_size)
                assert (tuple(self.tokens[number]), reason) == expected
        assert all(not cells for cells in self.engine.cells), "cells left behind"


TestRandomLives = Machine.TestCase
TestRandomLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
