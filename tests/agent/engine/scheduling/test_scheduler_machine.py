"""The planner under random arrivals, drops, durations and bad steps.

Every sequence ends exactly once with the tokens it would get alone, whatever happens around it;
the engine underneath checks positions, slots, ceilings and capacity at each step.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.agent.engine.cost.move_cost import MOST_BYTES
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.prompt import Media, Prompt, border
from arriero.agent.engine.prompt_store.blocks import OnDisk
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.disk_reads import PART_BYTES, DiskRead
from arriero.agent.engine.scheduling.exports import Exported, ExportId
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import (
    ContextShift,
    NewSequence,
    SequenceId,
    SequenceOutput,
)
from arriero.agent.engine.speculation.drafter import Drafter, DraftRequest, Proposal, StepPrices
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from arriero.agent.engine.step import (
    Aborted,
    Decoded,
    Failed,
    NoRoom,
    NotLoaded,
)
from arriero.shared.errors import EngineFailed, PromptTooLong
from tests.agent.engine.fake_engine import (
    ADAPTERS,
    END_TOKEN,
    VOCAB_SIZE,
    FakeEngine,
    cells_of,
    echoing,
    marked,
    next_token,
    run_alone,
    score_of,
    state_of,
    stored_checkpoints,
    stored_prompt,
)

BLOCK = 4
"""Tokens of a block on disk."""


class Lives(RuleBasedStateMachine):
    """Random arrivals, drops and bad steps over an engine that checks every rule."""

    context_size = 24
    slots = 3
    following = staticmethod(next_token)
    piece = 3

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=40,
            num_holders=6,
            most_parked=30,
            is_compact=True,
        )

    def make_drafter(self) -> Drafter | None:
        return None

    def __init__(self) -> None:
        super().__init__()
        self.engine = self.make_engine()
        self.scheduler = Scheduler(
            slots=self.slots,
            context_size=self.context_size,
            max_stall=0.5,
            end_tokens=frozenset({END_TOKEN}),
            capacity=self.engine.capacity,
        )
        self.drafting = Drafting(self.make_drafter())
        self.sequences: dict[int, NewSequence] = {}
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.scores: dict[int, list[LogProbs]] = defaultdict(list)
        self.ends: dict[int, object] = {}
        self.dropped: set[int] = set()
        self.failed: set[int] = set()
        self.exporting: list[Prompt] = []
        self.exported: set[int] = set()
        self.reading: list[DiskRead] = []
        self.elapsed = 0.01

    @rule(
        length=st.integers(1, 24),
        family=st.integers(0, 2),
        own=st.integers(0, 23),
        max_tokens=st.none() | st.integers(0, 12),
        priority=st.integers(-1, 1),
        adapter=st.none() | st.sampled_from(ADAPTERS),
        kind=st.sampled_from(["plain", "plain", "shift", "prefill", "stored", "torn", "disk"])
        | st.sampled_from(["scored", "scored prefill", "resumed", "resumed shift"]),
        media=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 12)),
    )
    def add(
        self,
        *,
        length: int,
        family: int,
        own: int,
        max_tokens: int | None,
        priority: int,
        adapter: str | None,
        kind: str,
        media: tuple[int, int, int] | None,
    ) -> None:
        """A prompt of one of three families, which share a beginning; `own` is where it departs.

        `media` say which, where, and how many positions they take.
        """
        number = len(self.sequences)
        prompt = [1 + (7 * family + i * i) % (VOCAB_SIZE - 1) for i in range(length)]
        prompt[own:] = [1 + (token + number) % (VOCAB_SIZE - 1) for token in prompt[own:]]
        if media is None or length < 2:
            self.give(Prompt(tuple(prompt), adapter=adapter), max_tokens, priority, kind)
            return
        which, place, size = media
        place = min(place, length - 1)
        shown = Media(
            bytes([which, size]),
            size,
            is_whole=which == 2 and size <= self.engine.capacity.batch_size,
        )
        spans = (tuple(prompt[:place]), shown, tuple(prompt[place:]))
        told = kind if kind in ("plain", "prefill", "resumed") else "plain"
        self.give(Prompt(*spans, adapter=adapter), max_tokens, priority, told)

    @precondition(lambda self: self.ends)
    @rule(data=st.data(), more=st.integers(1, 4))
    def follow_up(self, data: st.DataObject, more: int) -> None:
        """A further turn: an ended sequence's tokens, and more."""
        number = data.draw(st.sampled_from(sorted(self.ends)))
        before = self.sequences[number]
        answer = (*before.said, *self.tokens[number])
        more_spans = (*before.prompt.spans, (*answer, *range(1, more + 1)))
        prompt = Prompt(*more_spans, adapter=before.prompt.adapter)
        most = border(prompt.keys, min(len(prompt), self.context_size - 1))
        if most and not isinstance(prompt.part(0, most).spans[-1], Media):
            self.give(prompt.part(0, most), None, 0, "plain")

    def give(
        self,
        prompt: Prompt,
        max_tokens: int | None,
        priority: int,
        kind: str,
    ) -> None:
        sequence = NewSequence(
            id=SequenceId(len(self.sequences)),
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=Sampling(seed=0, temperature=0),
            priority=priority,
            borders=tuple(range(5, len(prompt), 4)),
        )
        adapter = prompt.adapter
        stored = prompt.tokens[:-2] or prompt.tokens
        match kind:
            case "shift" | "resumed shift":
                most = 60 if max_tokens is None else max_tokens
                sequence = replace(sequence, shift=ContextShift(3, 4), max_tokens=most)
            case "prefill" if len(prompt) < self.context_size:
                sequence = replace(sequence, prefill_only=True)
            case "stored":
                sequence = replace(sequence, stored=self.store(stored, adapter))
            case "torn":
                whole = self.store(stored, adapter)
                torn = tuple(Piece(one.num_tokens, b"?") for one in whole.pieces)
                states = tuple(replace(one, state=b"?") for one in whole.checkpoints)
                stored = StoredPrompt(whole.prompt, torn, checkpoints=states)
                sequence = replace(sequence, stored=stored)
            case "scored":
                sequence = replace(sequence, scores_prompt=True)
            case "scored prefill" if len(prompt) < self.context_size:
                sequence = replace(sequence, scores_prompt=True, prefill_only=True)
            case "disk" if self.engine.capacity.can_share and not prompt.has_media:
                names = tuple(map(str, range(len(prompt) // BLOCK)))
                sequence = replace(sequence, on_disk=OnDisk(names, block=BLOCK))
        if kind.startswith("resumed"):
            sequence = replace(sequence, said=self.beginning(sequence))
        self.sequences[sequence.id] = sequence
        self.scheduler.add(sequence)

    def beginning(self, sequence: NewSequence) -> tuple[int, ...]:
        """What another engine said before: half of the answer."""
        if len(sequence.prompt) >= self.context_size and sequence.shift is None:
            return ()
        alone, _ = run_alone(sequence, self.context_size, self.following)
        return alone[: len(alone) // 2]

    def rest(self, sequence: NewSequence) -> tuple[tuple[int, ...], str]:
        """What is left to say for this engine, and how it ends."""
        alone, reason = run_alone(sequence, self.context_size, self.following)
        return alone[len(sequence.said) :], reason

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sequences)))
        self.scheduler.drop(SequenceId(number))
        self.drafting.forget(SequenceId(number))
        self.dropped.add(number)

    @precondition(lambda self: self.sequences)
    @rule(
        data=st.data(),
        more=st.integers(0, 3),
        start=st.integers(0, 3),
        most_checkpoints=st.integers(1, 4),
        can_wait=st.booleans(),
    )
    def export(
        self, data: st.DataObject, more: int, start: int, most_checkpoints: int, can_wait: bool
    ) -> None:
        """What a sequence has, or had, computed is asked for, and perhaps more."""
        number = data.draw(st.sampled_from(sorted(self.sequences)))
        one = self.sequences[number]
        tail = (*one.said, *self.tokens[number], *range(1, more + 1))
        self.exporting.append(Prompt(*one.prompt.spans, tail, adapter=one.prompt.adapter))
        id = ExportId(len(self.exporting) - 1)
        if self.engine.capacity.checkpoint_gap:
            start *= self.engine.capacity.block
        wanted = HandOut(start, most_checkpoints)
        self.scheduler.export(id, self.exporting[-1], wanted, can_wait=can_wait)

    @precondition(lambda self: len(self.exported) < len(self.exporting))
    @rule(data=st.data())
    def withdraw_export(self, data: st.DataObject) -> None:
        """The other agent does not wait any longer: nothing may come of it."""
        left = sorted(set(range(len(self.exporting))) - self.exported)
        number = data.draw(st.sampled_from(left))
        self.scheduler.withdraw_export(ExportId(number))
        self.exported.add(number)

    @precondition(lambda self: self.reading)
    @rule(how=st.sampled_from(["whole", "whole", "part", "torn", "nothing"]))
    def arrive(self, how: str) -> None:
        """What was to be read from disk is there, or a part of it, or something else."""
        read = self.reading.pop()
        wanted, start = read.blocks.prompt, read.blocks.start
        stop = len(wanted) if how != "part" else start + BLOCK
        if how == "nothing":
            self.scheduler.arrived(read.id, None)
            return
        cells = cells_of(wanted)
        parts = [cells[at : at + 2] for at in range(start, stop, 2)]
        states = [b"?" if how == "torn" else state_of(part) for part in parts]
        pieces = tuple(map(Piece, map(len, parts), states))
        self.scheduler.arrived(read.id, StoredPrompt(wanted.part(0, stop), pieces, start))

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

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def break_one(self, data: st.DataObject) -> None:
        """From now on nothing can be chosen for it."""
        self.engine.broken.add(SequenceId(data.draw(st.sampled_from(sorted(self.sequences)))))

    @rule()
    def lose_parked(self) -> None:
        self.engine.lose_parked()

    def step(self) -> None:
        proposals = self.drafting.propose(self.scheduler.draft_requests())
        step = self.scheduler.plan(proposals)
        if step is None:
            return
        cells = self.scheduler.statistics().cells
        num_used = cells.used + cells.kept
        outcome = self.engine.execute(step)
        if not isinstance(outcome, NotLoaded):
            assert self.engine.num_cells_after_edits == num_used, "cells nobody accounts for"
        if isinstance(outcome, Decoded):
            self.failed |= outcome.broken
        if isinstance(outcome, Failed) or (isinstance(outcome, NoRoom) and len(step.runs) == 1):
            self.failed |= {run.id for run in step.runs}
        outputs = self.scheduler.commit(step, outcome, self.elapsed)
        for exported in self.scheduler.take_exported():
            self.check_exported(exported)
        self.reading += self.scheduler.take_disk_reads()
        assert len(self.reading) <= 1, "one prefix is read at a time"
        self.drafting.observe(step, outcome, self.elapsed, outputs)
        for output in outputs:
            self.take(output)
        self.scheduler.check_integrity()

    def check_exported(self, exported: Exported) -> None:
        """Whatever was read of it belongs to its beginning."""
        assert exported.id not in self.exported, "exported twice"
        self.exported.add(exported.id)
        if exported.prefix is None:
            return
        asked, given = self.exporting[exported.id], exported.prefix
        assert given.prompt == asked.part(0, len(given.prompt))
        cells = cells_of(given.prompt)
        if self.engine.capacity.checkpoint_gap:
            block = self.engine.capacity.block
            assert given.checkpoints[-1].length == len(cells)
            for one in given.checkpoints:
                assert one.state == state_of(cells[: one.length])
                assert one.tail == state_of(cells[(one.length - 1) // block * block : one.length])
            cells = cells[: (len(cells) - 1) // block * block]
        states = [bytes(one.state).removeprefix(b"state of ") for one in given.pieces]
        assert b"".join(states) == bytes(cells)[given.start :]
        assert [*map(len, states)] == [one.num_tokens for one in given.pieces]

    def take(self, output: SequenceOutput) -> None:
        assert output.id not in self.ends, "something after the end"
        assert output.id not in self.dropped, "something after the drop"
        self.tokens[output.id] += output.tokens
        self.scores[output.id] += output.prompt_log_probs
        if output.tokens:
            self.check_scores(self.sequences[output.id])
        if output.end is not None:
            self.ends[output.id] = output.end.reason
            assert output.end.stats.completion_tokens == len(self.tokens[output.id])

    def store(self, tokens: tuple[int, ...], adapter: str | None) -> StoredPrompt:
        if self.engine.capacity.checkpoint_gap:
            lengths = sorted({len(tokens), max(1, len(tokens) - 4)})
            return stored_checkpoints(*tokens, lengths=lengths, adapter=adapter)
        piece = self.piece if self.engine.capacity.can_share else len(tokens)
        return stored_prompt(*tokens, piece=piece, adapter=adapter)

    def was_never_run(self, number: int) -> bool:
        """It ended at once, with nothing to do."""
        return self.sequences[number].max_tokens == 0 and not self.sequences[number].prefill_only

    def check_scores(self, sequence: NewSequence) -> None:
        """All of a prompt is explained before its answer begins, whoever computed it before."""
        prompt = sequence.prompt.tokens if sequence.scores_prompt else ()
        cells = marked(prompt, sequence.prompt.adapter)
        expected = [score_of(cells[:i], prompt[i]) for i in range(1, len(prompt))]
        assert self.scores[sequence.id] == expected

    @invariant()
    def prefixes_of_the_run_alone_tokens(self) -> None:
        for number, tokens in self.tokens.items():
            alone, _ = self.rest(self.sequences[number])
            assert tuple(tokens) == alone[: len(tokens)]

    def teardown(self) -> None:
        most = 100 + 40 * self.context_size * (len(self.sequences) + len(self.exporting))
        for _ in range(most):
            if self.reading:
                self.arrive(how="whole")
            if self.scheduler.is_idle:
                break
            self.step()
        assert self.scheduler.is_idle and not self.reading, "it never comes to rest"
        assert self.exported == set(range(len(self.exporting)))
        for number, sequence in self.sequences.items():
            if number in self.dropped:
                continue
            reason = self.ends[number]
            if isinstance(reason, EngineFailed):
                assert number in self.failed
            elif isinstance(reason, PromptTooLong):
                assert len(sequence.prompt) >= self.context_size
            else:
                expected = self.rest(sequence)
                if sequence.max_tokens != 0 or sequence.prefill_only:
                    self.check_scores(sequence)
                assert (tuple(self.tokens[number]), reason) == expected


class MovingLives(Lives):
    """A few cells a step are copied to and from host memory."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=40,
            num_holders=6,
            most_parked=30,
            is_compact=True,
            cell_bytes=MOST_BYTES // 5,
            seconds_per_moved_cell=0.02,
        )


class DiskLives(Lives):
    """What comes from disk comes block by block."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=40,
            num_holders=6,
            most_parked=10,
            is_compact=True,
            cell_bytes=PART_BYTES // BLOCK,
            seconds_per_moved_cell=0.02,
        )

    def give(self, prompt: Prompt, max_tokens: int | None, priority: int, kind: str) -> None:
        super().give(prompt, max_tokens, priority, "disk" if kind == "plain" else kind)


class TightLives(Lives):
    """So few cells that hardly two sequences fit."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=5,
            num_cells=self.context_size,
            num_holders=4,
        )


class DeceivedLives(Lives):
    """The engine has fewer cells than it says."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=30,
            believed_cells=60,
        )


class StreamLives(Lives):
    """Each sequence has a cache of its own."""

    num_streams = 3
    following = staticmethod(next_token)

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=self.num_streams * self.context_size,
            num_holders=9,
            most_parked=60,
            num_streams=self.num_streams,
            following=self.following,
        )


class RoomyStreamLives(StreamLives):
    """Kept prefixes can have streams while all slots are busy."""

    slots = 2
    num_streams = 5


class MovingStreamLives(StreamLives):
    """Hardly more than one stream is copied before a step."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=self.num_streams * self.context_size,
            num_holders=9,
            most_parked=60,
            num_streams=self.num_streams,
            cell_bytes=MOST_BYTES // 5,
            seconds_per_moved_cell=0.02,
        )


class LonelyLives(Lives):
    """A model that can neither share nor give up a suffix."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=40,
            can_share=False,
        )


class CheckpointLives(Lives):
    """A model that shares at checkpoints alone."""

    num_cells = 40
    num_holders = 8
    most_parked = 60

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=self.num_cells,
            num_holders=self.num_holders,
            can_share=False,
            checkpoint_gap=2,
            most_parked=self.most_parked,
        )


class TightCheckpointLives(CheckpointLives):
    """There is hardly room for checkpoints, and hardly a number for one."""

    num_cells = 26
    num_holders = 4
    most_parked = 30


class UnparkedCheckpointLives(TightCheckpointLives):
    """Nothing goes to host memory."""

    most_parked = 0


class MovingCheckpointLives(CheckpointLives):
    """A few cells a step are copied to and from host memory."""

    num_cells = 30
    num_holders = 6

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=8,
            num_cells=self.num_cells,
            num_holders=self.num_holders,
            can_share=False,
            checkpoint_gap=2,
            most_parked=60 * (MOST_BYTES // 5),
            cell_bytes=MOST_BYTES // 5,
            state_bytes=4 * (MOST_BYTES // 5),
            seconds_per_moved_cell=0.02,
        )


class SpeculatingLives(Lives):
    """What comes next is often what followed before, and is drafted."""

    following = staticmethod(echoing)
    context_size = 48
    batch_size = 12
    most_mixed = 12
    num_cells = 120

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=self.batch_size,
            most_mixed=self.most_mixed,
            num_cells=self.num_cells,
            num_holders=6,
            most_parked=30,
            is_compact=True,
            max_draft=4,
            following=self.following,
        )

    def make_drafter(self) -> Drafter:
        return LookupDrafter(self.context_size)


class SpeculatingStreamLives(SpeculatingLives):
    """Drafts of different lengths in caches of their own."""

    def make_engine(self) -> FakeEngine:
        return FakeEngine(
            slots=self.slots,
            context_size=self.context_size,
            batch_size=self.batch_size,
            num_cells=self.slots * self.context_size,
            num_holders=9,
            most_parked=60,
            num_streams=self.slots,
            max_draft=4,
            following=self.following,
        )


class WildDrafter:
    """Proposes anything, and is sure of it: too much, end tokens, for sequences that are not."""

    def __init__(self) -> None:
        self._random = Random(5)

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        ids = [request.id for request in requests] + [SequenceId(999)]
        return {id: self._proposal() for id in ids if self._random.random() < 0.8}

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        assert id != SequenceId(999)
        assert saved >= 0

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        assert all(token != END_TOKEN for token in tokens)

    def forget(self, id: SequenceId) -> None:
        """It remembers nobody."""

    def _proposal(self) -> Proposal:
        count = self._random.randint(0, 8)
        tokens = tuple(self._random.randrange(VOCAB_SIZE) for _ in range(count))
        return Proposal(tokens, tuple(self._random.random() for _ in range(count)))


class WildlySpeculatingLives(SpeculatingLives):
    """Whatever is proposed, the text is the same."""

    def make_drafter(self) -> Drafter:
        return WildDrafter()


class TightSpeculatingLives(SpeculatingLives):
    """Hardly ever are there cells for drafts."""

    batch_size = most_mixed = 6
    num_cells = 60


class TurnTakingLives(SpeculatingLives):
    """Little is read beside generating sequences."""

    most_mixed = 3


MACHINES = (
    *(Lives, MovingLives, DiskLives, TightLives, DeceivedLives, LonelyLives),
    *(CheckpointLives, TightCheckpointLives, UnparkedCheckpointLives, MovingCheckpointLives),
    *(StreamLives, RoomyStreamLives, MovingStreamLives, SpeculatingStreamLives),
    *(SpeculatingLives, TightSpeculatingLives, TurnTakingLives, WildlySpeculatingLives),
)

TestLives = Lives.TestCase
TestMovingLives = MovingLives.TestCase
TestDiskLives = DiskLives.TestCase
TestTightLives = TightLives.TestCase
TestDeceivedLives = DeceivedLives.TestCase
TestLonelyLives = LonelyLives.TestCase
TestCheckpointLives = CheckpointLives.TestCase
TestTightCheckpointLives = TightCheckpointLives.TestCase
TestUnparkedCheckpointLives = UnparkedCheckpointLives.TestCase
TestMovingCheckpointLives = MovingCheckpointLives.TestCase
TestStreamLives = StreamLives.TestCase
TestRoomyStreamLives = RoomyStreamLives.TestCase
TestMovingStreamLives = MovingStreamLives.TestCase
TestSpeculatingStreamLives = SpeculatingStreamLives.TestCase
TestSpeculatingLives = SpeculatingLives.TestCase
TestTightSpeculatingLives = TightSpeculatingLives.TestCase
TestWildlySpeculatingLives = WildlySpeculatingLives.TestCase
TestTurnTakingLives = TurnTakingLives.TestCase
for one in MACHINES:
    one.TestCase.settings = settings(stateful_step_count=40)
del one
