"""Preemption, admission, prefill chunking: the plan of the next step.

Preemption comes first: every running sequence must be able to gain a token. Then waiting sequences
begin, as far as there is room. Then the step is composed for the sequences of one adapter
(`AdapterTurns`), with batch requests last (`background`). It has a token of each generating
sequence, and as much of the prompts as time and cells allow, or only one of the two (`prefill`).
If the model attends to a picture as a whole, one step reads the picture and nothing else, however
long that takes. Drafts use only cells that no sequence needs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor

from ..sequence import SequenceId
from ..speculation.draft_worth import Speculation
from ..speculation.drafter import DraftRequest, Proposal, StepPrices
from ..step import Edit, Run, Step
from .admission import Admission
from .prefill import Prefill
from .progress import Progress
from .state import SchedulerState
from .step_budget import StepBudget

ROUND = 0.2
"""The share of the maximum stall that a round of all adapters may take if turns are longer."""

MOST_IN_TURN = 16
"""Maximum steps of a turn; with more steps a change of adapters costs little in comparison."""

PROBED = 2
"""Steps of a turn until the cost of a step without a change of adapter is known."""

AdapterKey = str | None
"""The value of `Prompt.adapter`; `None` is the model without adapters."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The adapter of a step. If `reads`, the step may read the adapter's prompts."""

    adapter: AdapterKey = None
    reads: bool = False


class AdapterTurns:
    """Decides which adapter the next step computes, if sequences use different adapters.

    llama.cpp applies adapters to a whole batch, so one step computes sequences of one adapter.
    Adapters with generating sequences take turns. A turn has equally many tokens for each
    sequence, however many sequences an adapter has, so all streams advance at one pace. A change
    of adapters costs as much as a small step. So if a round of all adapters is short, a turn has
    several steps; while prompts wait, a turn has one step. Prompts are read at most once in a
    round: the next prompt in the fair order, whatever its adapter. So a stream waits for one turn
    of each other adapter, and for one step that reads.

    With one adapter a round is one step: streams and prompts take turns, or share steps
    (`prefill`).
    """

    def __init__(self) -> None:
        self._order: list[AdapterKey] = []
        self._late: set[AdapterKey] = set()
        self._turn: tuple[AdapterKey, int] | None = None
        """The adapter that generated last, and its number of steps in a row."""

    def __len__(self) -> int:
        """Return the number of adapters that take turns."""
        return len(self._order)

    def next(
        self,
        generating: Iterable[AdapterKey],
        readers: Iterable[AdapterKey],
        most_steps: int = 1,
    ) -> Turn:
        """Choose the next turn among the adapters that can generate and the `readers`.

        The first of the `readers` is the adapter of the next prompt. The last adapter continues up
        to `most_steps`, unless there are readers. Adapters that have waited since prompts were
        read come first, the longest waiting first.
        """
        readers = list(readers)
        generating = dict.fromkeys(generating)
        self._order = [key for key in self._order if key in generating]
        self._order += [key for key in generating if key not in self._order]
        if self._turn is not None and not readers:
            adapter, num_steps = self._turn
            if adapter in generating and num_steps < most_steps:
                return Turn(adapter)
        self._late.intersection_update(generating)
        for key in self._order:
            if key in self._late:
                return Turn(key)
        for reader in readers:
            if reader in generating and reader != self._order[0]:
                break  # it may generate besides, so it waits for its turn
            return Turn(reader, reads=True)
        return Turn(self._order[0]) if self._order else Turn()

    def took(self, adapter: AdapterKey, *, has_generated: bool, has_read: bool) -> None:
        """Record that a step of `adapter` generates, reads prompts, or both."""
        if has_read:
            self._late = set(self._order)
        if has_generated:
            last, num_steps = self._turn or (None, 0)
            self._turn = (adapter, num_steps + 1 if last == adapter else 1)
            self._late.discard(adapter)
            self._order.remove(adapter)
            self._order.append(adapter)


def steps_of_a_turn(budget: StepBudget, sizes: Iterable[int]) -> int:
    """Return the steps of each adapter's turn, from the number of sequences under each adapter.

    The result is at least one. A stream waits for all other turns, so only short rounds get
    several steps. The more steps a turn has, the less the changes of adapters cost. If every step
    so far changed the adapter, a second step measures the cost of steps without a change.
    """
    sizes = list(sizes)
    seconds = sum(map(budget.cost.generate, sizes))
    if not seconds:
        return 1
    if not budget.cost.knows_unchanged:
        return PROBED
    left = ROUND * budget.max_stall - len(sizes) * budget.cost.change
    return max(1, min(MOST_IN_TURN, floor(left / seconds)))


class Planner:
    """Plans steps. The planner changes the queue and the memory; the step carries the
    changes out.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._queue = state.queue
        self._memory = state.memory
        self._budget = state.budget
        self._tally = state.tally
        self._background = state.background
        self._exports = state.exports
        self._speculation = Speculation(
            most=state.capacity.max_draft, cost=state.budget.cost, end_tokens=state.end_tokens
        )
        self.prefill = Prefill(state)
        self._admission = Admission(state)
        self._turns = AdapterTurns()

    def draft_requests(self) -> tuple[DraftRequest, ...]:
        """Return the drafts to request before the next `plan`; none if drafts cannot pay.

        With several adapters, only sequences of the next turn get drafts.
        """
        if not self._speculation.most:
            return ()
        generating = self._next_streams()
        if not self._speculation.may_pay(len(generating)):
            return ()
        most = self._speculation.most
        return tuple(
            DraftRequest(one.id, one.history, min(most, one.most_ahead))
            for one in generating
            if one.most_ahead > 0
        )

    def draft_prices(self) -> StepPrices:
        """Return the estimated cost of the next step. Drafts get no time while prompts wait."""
        is_reading = bool(self._queue.candidates) or self._queue.num_streaming < len(
            self._queue.running
        )
        return self._budget.draft_prices(len(self._next_streams()), has_time=not is_reading)

    def plan(self, proposals: Mapping[SequenceId, Proposal]) -> Step:
        """Return the next step, with the proposals that pay. It fits the free cells."""
        self._background.look(self._queue.everybody, self._tally.now)
        self._relieve()
        num_streaming = self._queue.num_streaming
        self._memory.allowance.renew(
            self._budget.moved_cells(num_streaming), self._budget.most_whole(num_streaming)
        )
        self._admission.admit()
        return self._compose(proposals)

    def _next_streams(self) -> list[Progress]:
        """Return the sequences that generate in the next step, if the step reads no prompts."""
        generating = [one for one in self._queue.running.values() if one.is_generating]
        if not self._has_turns:
            return generating
        turn = self._turns.next(
            (one.adapter for one in generating), (), self._most_steps(generating)
        )
        return [one for one in generating if one.adapter == turn.adapter]

    @property
    def _has_turns(self) -> bool:
        """Return whether several adapters run, so that they take turns."""
        return len(self._queue.adapters) > 1

    def _relieve(self) -> None:
        """Preempt until every running sequence can gain a token."""
        if not self._queue.running:
            self._memory.room.limit()
        if len(self._queue.running) <= self._memory.room.num_available:
            self._relieve_whole()
            return
        while 1 < len(self._queue.running) > self._memory.room.num_available:
            self._preempt()

    def _relieve_whole(self) -> None:
        """Preempt if all sequences read pictures as a whole, and no picture has room."""
        while running := self._queue.running:
            num_available = self._memory.room.num_available
            if any(one.num_at_once <= num_available for one in running.values()):
                return
            if len(running) == 1:
                self._memory.room.limit()  # it fits alone, unless the cache took too little before
                return
            self._preempt()

    def _preempt(self) -> None:
        self._state.preempt(self._queue.last())
        self._tally.preempted()

    def _compose(self, proposals: Mapping[SequenceId, Proposal]) -> Step:
        generating, reading = self._divided()
        num_streaming = len(generating)
        prompts = self.prefill.choose(reading, num_streaming)
        num_wanted, most_read = prompts.num_wanted, self.prefill.most(prompts)
        readers = prompts.readers if most_read > 0 else ()
        generating = self._background.staying(generating, readers, self._tally.now)
        turn = self._turn(generating, [one for one in readers if prompts.wanted[one.id]])
        generating = self._under(turn.adapter, generating)
        if not turn.reads:
            num_wanted = most_read = 0
        elif self.prefill.is_alone(
            len(generating), min(most_read, num_wanted), is_media=prompts.has_media
        ):
            generating = {}
        self._turns.took(turn.adapter, has_generated=bool(generating), has_read=turn.reads)
        offered = _offered(generating, proposals)
        drafts = self._draft(offered, len(generating), num_wanted, most_read)
        num_drafted = sum(map(len, drafts.values()))
        shares = self.prefill.share(
            prompts, most_read - num_drafted, num_others=len(generating) + num_drafted
        )
        edits: tuple[Edit, ...] = self._memory.take_edits()
        return Step(
            (*edits, *self._exports.plan(num_streaming, self._tally.now)),
            self._runs(generating, drafts, reading, shares),
            len(generating),
            sum(shares.values()),
            num_drafted,
            turn.adapter,
        )

    def _runs(
        self,
        generating: dict[int, Progress],
        drafts: Mapping[int, tuple[int, ...]],
        reading: dict[int, Progress],
        shares: Mapping[SequenceId, int],
    ) -> tuple[Run, ...]:
        """Return the runs of sequences that generate, then of sequences that read prompts."""
        return (
            *(
                next_run(slot, one, drafts.get(slot, ()))
                for slot, one in self._in_place(generating)
            ),
            *(
                chunk_run(slot, one, shares[one.id])
                for slot, one in self._in_place(reading)
                if one.id in shares
            ),
        )

    def _divided(self) -> tuple[dict[int, Progress], dict[int, Progress]]:
        """Return the generating sequences and the reading sequences, by slot."""
        generating: dict[int, Progress] = {}
        reading: dict[int, Progress] = {}
        for slot, one in self._queue.running.items():
            (generating if one.is_generating else reading)[slot] = one
        return generating, reading

    def _turn(self, generating: dict[int, Progress], readers: Iterable[Progress]) -> Turn:
        reading = (one.adapter for one in readers)
        if not self._has_turns:
            return self._turns.next(self._queue.adapters if generating else (), reading)
        adapters = [one.adapter for one in generating.values()]
        return self._turns.next(adapters, reading, self._most_steps(generating.values()))

    def _most_steps(self, generating: Iterable[Progress]) -> int:
        """Return the maximum steps of a turn; 1 with a single adapter."""
        counts = Counter(one.adapter for one in generating)
        return steps_of_a_turn(self._budget, counts.values()) if len(counts) > 1 else 1

    def _under(self, adapter: AdapterKey, some: dict[int, Progress]) -> dict[int, Progress]:
        if not self._has_turns:
            return some
        return {slot: one for slot, one in some.items() if one.adapter == adapter}

    def _in_place(self, some: dict[int, Progress]) -> list[tuple[int, Progress]]:
        """Return `some` sequences in the order of their places in the cache."""
        return sorted(some.items(), key=lambda item: item[1].place)

    def _draft(
        self, offered: dict[int, Proposal], num_generating: int, num_wanted: int, most_read: int
    ) -> dict[int, tuple[int, ...]]:
        """Choose drafts that fit into cells which neither kept prefixes nor prompts need now."""
        if not offered:
            return {}
        num_in_time = self.prefill.most_drafted(num_generating, num_wanted, most_read)
        num_cells = self._memory.room.num_free - num_generating - min(most_read, num_wanted)
        return self._speculation.choose(offered, num_generating, min(num_in_time, num_cells))


def _offered(
    generating: dict[int, Progress], proposals: Mapping[SequenceId, Proposal]
) -> dict[int, Proposal]:
    """Return the proposals by slot, cut to the number of tokens that a sequence may gain."""
    if not proposals:
        return {}
    return {
        slot: proposals[one.id].first(one.most_ahead)
        for slot, one in generating.items()
        if one.id in proposals
    }


def next_run(slot: int, one: Progress, draft: tuple[int, ...]) -> Run:
    """Return the run of a generating sequence: its last token and its draft."""
    last = one.num_computed
    return Run(one.id, slot, last, (*one.next_tokens(1), *draft), True, len(draft))


def chunk_run(slot: int, one: Progress, count: int) -> Run:
    """Return the run of the next `count` positions of a prompt, or of a part of a picture."""
    if (media := one.history.media_part(one.num_computed, count)) is not None:
        return Run(one.id, slot, one.num_computed, (), False, media=media)
    samples = count == one.num_pending and not one.prefill_only
    run = Run(one.id, slot, one.num_computed, one.next_tokens(count), samples)
    if not one.is_scoring or not (scored := one.to_score(count)):
        return run
    tokens = one.history.token_ids(scored.start, scored.stop)
    return replace(run, scored=tokens, first_scored=scored.start - 1 - one.num_computed)
