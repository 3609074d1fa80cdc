"""The scheduler of the engine: plans each step, and takes its outcome.

`plan` and `commit` alternate; `add` and `drop` come between steps. Before a `plan`, the drafter
answers the `draft_requests`. A sequence waits (best priority first, then by arrival), runs in a
slot, and ends exactly once, unless it is dropped.

If cells run short, kept prefixes are evicted first. Then the sequence of the worst rank is
preempted. Its tokens stay, its cells are freed, and it waits at the head of its rank to be
computed again. New sequences wait until then.

Invariants, checked by `check_integrity`:

- a slot has exactly the cells of its sequence's computed tokens, below the context size;
- no step is planned that does not fit the free cells.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

from ....shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError
from ....shared.reports.statistics import Statistics
from ..capacity import Capacity
from ..integrity import check
from ..kv_cache.handed import HandOut
from ..prompt import Media, Prompt
from ..prompt_store.blocks import Left
from ..prompt_store.stored_prompt import StoredPrompt
from ..sequence import NewSequence, SequenceId, SequenceOutput
from ..speculation.drafter import DraftRequest, Proposal, StepPrices
from ..step import Aborted, Decoded, Explained, Failed, NoRoom, NotLoaded, Outcome, Step
from .accounting import Accounting
from .context_shift import open_window
from .disk_reads import DiskRead
from .exports import Exported, ExportId
from .planner import Planner
from .progress import Progress
from .recovery import Recovery
from .state import SchedulerState

TELL_PAUSE = 1.0
"""Seconds between two progress reports on the same sequence."""

NO_PROPOSALS: Mapping[SequenceId, Proposal] = MappingProxyType({})


class Scheduler:
    """Plans steps for `slots` sequences of at most `context_size` tokens each.

    Steps are sized to stay below `max_stall` seconds by the measured cost of steps.
    """

    def __init__(
        self,
        *,
        slots: int,
        context_size: int,
        max_stall: float,
        end_tokens: frozenset[int],
        capacity: Capacity,
    ) -> None:
        if capacity.batch_size < slots:
            raise ValueError(
                f"a batch of {capacity.batch_size} cannot hold a token of each of {slots} slots"
            )
        self._ceiling = min(context_size, capacity.num_cells)
        state = SchedulerState(
            slots=slots, max_stall=max_stall, end_tokens=end_tokens, capacity=capacity
        )
        self._state = state
        self._memory = state.memory
        self.marks = state.memory.marks
        """The marks on cached prefixes, by which balancers ask for them."""
        self._tally = state.tally
        self._queue = state.queue
        self._running = state.queue.running
        self._background = state.background
        self._exports = state.exports
        self._disk_reads = state.disk_reads
        self._waits_for_disk = False
        """Whether the last step was empty because all sequences wait for reads from disk."""
        self._planner = Planner(state)
        self._accounting = Accounting(state)
        self._recovery = Recovery(state)
        self._ids: set[SequenceId] = set()
        self._unannounced: list[SequenceOutput] = []
        self._tell_from = 0.0
        """Before this time no sequence is due for a progress report."""
        self._num_arrived = 0
        self._planned: Step | None = None

    # ---- what the outside asks

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a sequence."""
        return self._ceiling

    @property
    def is_idle(self) -> bool:
        """Return whether there is nothing to plan: no sequence, no output and no export."""
        if self._waits_for_disk:
            return True
        has_work = self._running or self._queue.waiting or self._unannounced
        return not has_work and self._exports.is_idle

    @property
    def is_background(self) -> bool:
        """Return whether all sequences are batch requests."""
        return all(each.is_background for each in self._queue.everybody)

    def statistics(self) -> Statistics:
        """Return the counts so far, and the current state."""
        counts = self._memory.counts
        return self._tally.summary(
            num_running=len(self._running),
            num_waiting=len(self._queue.waiting),
            cells=replace(counts, parked=counts.parked + self._queue.num_stored),
        )

    def add(self, sequence: NewSequence, error: RequestError | None = None) -> None:
        """Add a sequence that waits for a slot.

        A sequence that can never run, or has an `error`, ends with the next step.
        """
        if sequence.id in self._ids:
            raise ValueError(f"sequence {sequence.id} is here already")
        self._ids.add(sequence.id)
        self._waits_for_disk = False
        window = None
        error = error or refusal(sequence, self._ceiling)
        if sequence.shift is not None and error is None:
            window, notices = open_window(
                sequence.shift, self._ceiling, len(sequence.prompt), len(sequence.said)
            )
            if notices:
                self._unannounced.append(SequenceOutput(sequence.id, notices=notices))
        arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
        one = Progress(sequence, arrival=arrival, ceiling=self._ceiling, window=window)
        one.told_at = self._tally.now
        if error is not None:
            self._unannounced.append(SequenceOutput(one.id, (), one.end(error)))
        elif one.is_full and not one.prefill_only:
            self._unannounced.append(SequenceOutput(one.id, (), one.end("length")))
        else:
            self._queue.wait(one)

    def drop(self, sequence_id: SequenceId) -> None:
        """Remove a sequence without any further output. Unknown ids are ignored."""
        self._check_no_step()
        self._waits_for_disk = False
        if sequence_id not in self._ids:
            return
        self._ids.remove(sequence_id)
        self._queue.stop_waiting(sequence_id)
        self._unannounced = [one for one in self._unannounced if one.id != sequence_id]
        slot = self._queue.slot_of(sequence_id)
        if slot is not None:
            self._state.leave(slot)

    def export(
        self, id: ExportId, prompt: Prompt, wanted: HandOut, *, can_wait: bool = False
    ) -> None:
        """Export the longest cached prefix of `prompt`; `wanted` says which part of it.

        If the export `can_wait`, it takes little time of generating sequences.
        """
        self._waits_for_disk = False
        self._exports.add(id, prompt, wanted, can_wait=can_wait)

    def withdraw_export(self, id: ExportId) -> None:
        """Cancel an export. Unknown ids are ignored."""
        self._check_no_step()
        self._exports.withdraw(id)

    def take_exported(self) -> list[Exported]:
        """Return the exports that have ended since the last call."""
        return self._exports.take()

    def note_left(self) -> None:
        """From now on, record prefixes that sequences leave, for `take_left`."""
        self._state.notes_left = True

    def take_left(self) -> list[Left]:
        """Return the prefixes that sequences have left since the last call."""
        left, self._state.left = self._state.left, []
        return left

    def take_disk_reads(self) -> list[DiskRead]:
        """Return the reads from disk requested since the last call; answer each with `arrived`."""
        return self._disk_reads.take()

    def arrived(self, sequence_id: SequenceId, prefix: StoredPrompt | None) -> None:
        """Take the tokens of a sequence that could be read from disk."""
        self._check_no_step()
        self._waits_for_disk = False
        waiting = (one for one in self._queue.waiting if one.id == sequence_id)
        self._disk_reads.arrived(next(waiting, None), prefix)

    def draft_requests(self) -> tuple[DraftRequest, ...]:
        """Return the drafts that the next `plan` can use; empty without speculation."""
        return self._planner.draft_requests()

    def draft_prices(self) -> StepPrices:
        """Return the estimated cost of the next step, without and with drafts."""
        return self._planner.draft_prices()

    def plan(self, proposals: Mapping[SequenceId, Proposal] = NO_PROPOSALS) -> Step | None:
        """Return the next step; `None` if idle. Execute it, and answer with `commit`.

        The step uses the `proposals` that fit and pay. Proposals that were not requested are
        ignored.
        """
        self._check_no_step()
        if self.is_idle:
            return None
        self._planned = step = self._planner.plan(proposals)
        is_nothing = not (step.runs or step.edits or self._running)
        self._waits_for_disk = is_nothing and self._disk_reads.is_reading
        return step

    def may_be_stopped(self, step: Step) -> bool:
        """Return whether the planned `step` may be aborted, because it has only batch requests."""
        return self._background.may_be_stopped(step, self._running)

    def commit(
        self,
        step: Step,
        outcome: Outcome,
        elapsed: float,
        pause: float = 0.0,
        drafting: float = 0.0,
    ) -> tuple[SequenceOutput, ...]:
        """Account for `step`, which took `elapsed` seconds. Returns what each sequence gained.

        `pause` is the idle time in seconds before the step while there was work; `drafting` is the
        part of `pause` in which proposals were made.
        """
        if step is not self._planned:
            raise RuntimeError("this is not the step that was planned last")
        self._planned = None
        was_stopped = isinstance(outcome, Aborted)
        self._background.ended(step, self._running, elapsed, was_stopped=was_stopped)
        outputs = self._take_unannounced()
        last = self._tally.now
        self._tally.passed(pause + elapsed, len(self._running))
        match outcome:
            case Decoded() as decoded:
                gained = self._accounting.account(step, decoded, elapsed, last, drafting)
                outputs += _explained(gained, decoded)
                self._exports.read(decoded.saved)
                outputs += self._still_reading()
            case NoRoom():
                outputs += self._recovery.make_room(step)
            case Aborted():
                self._recovery.take_back(step)
            case NotLoaded(holders):
                outputs += self._recovery.read_instead(step, holders)
            case Failed(reason):
                outputs += self._recovery.fail(step, f"the engine failed: {reason}")
            case _:
                assert_never(outcome)
        self._ids.difference_update([each.id for each in outputs if each.end is not None])
        return tuple(outputs)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        self._memory.check_integrity()
        self._queue.check_integrity()
        everybody = [*self._running.values(), *self._queue.waiting]
        check({one.id for one in everybody} <= self._ids, "ids")
        for one in everybody:
            check(0 <= one.num_computed < len(one.history) < self._ceiling, f"{one.id}: computed")
        for one in self._queue.waiting:
            check(one.num_computed == 0, f"{one.id} waits with {one.num_computed} cells")
        for slot, one in self._running.items():
            check(self._memory.room.length(slot) == one.num_computed, f"cells of slot {slot}")

    def _still_reading(self) -> list[SequenceOutput]:
        """Return progress reports of sequences that gained nothing for `TELL_PAUSE`.

        Sequences that wait in the engine are included, since each step brings their turn nearer.
        """
        now = self._tally.now
        if now < self._tell_from:
            return []
        everybody = self._queue.everybody
        late = [one for one in everybody if now - one.heard_at >= TELL_PAUSE]
        for one in late:
            one.told_at = now
        self._tell_from = TELL_PAUSE + min((one.heard_at for one in everybody), default=now)
        return [
            SequenceOutput(one.id, stats=one.stats(), num_read=one.num_computed) for one in late
        ]

    def _take_unannounced(self) -> list[SequenceOutput]:
        outputs, self._unannounced = self._unannounced, []
        return outputs

    def _check_no_step(self) -> None:
        if self._planned is not None:
            raise RuntimeError("the last step was not committed")


def refusal(sequence: NewSequence, ceiling: int) -> RequestError | None:
    """Return the error of a `sequence` that does not fit a slot of `ceiling` tokens, or `None`."""
    prompt = sequence.prompt
    num_tokens = len(prompt)
    if num_tokens == 0:
        return InvalidRequest("the prompt has no tokens: give at least one")
    if prompt.has_media and (refused := _media_refusal(sequence)) is not None:
        return refused
    if num_tokens >= ceiling and sequence.shift is None:
        return PromptTooLong.of(num_tokens, ceiling - 1)  # one is for the answer
    if num_tokens + len(sequence.said) > ceiling and sequence.shift is None:
        return EngineFailed(
            f"the answer cannot continue here: {num_tokens} tokens of prompt and "
            f"{len(sequence.said)} of answer exceed this context of {ceiling}"
        )
    return None


def _media_refusal(sequence: NewSequence) -> RequestError | None:
    """Return the error if media end the prompt, or come with a shift or log-probabilities."""
    if isinstance(sequence.prompt.spans[-1], Media):
        return InvalidRequest("the prompt ends with media: give at least one token after them")
    if sequence.shift is not None:
        return InvalidRequest("a prompt with media cannot be shifted: leave out `n_discard`")
    if sequence.scores_prompt:
        return InvalidRequest("there are no log-probabilities of a prompt with media")
    return None


def _explained(outputs: list[SequenceOutput], outcome: Decoded) -> list[SequenceOutput]:
    """Return `outputs` with the log-probabilities of their tokens and of prompts."""
    if outcome.log_probs:
        outputs = [_with_log_probs(output, outcome.log_probs) for output in outputs]
    if outcome.prompt_log_probs:
        outputs = _with_prompts(outputs, outcome.prompt_log_probs)
    return outputs


def _with_log_probs(output: SequenceOutput, log_probs: Explained) -> SequenceOutput:
    """Return the output with the log-probabilities of the tokens that it gained."""
    return replace(output, log_probs=log_probs.get(output.id, ())[: _num_chosen(output)])


def _with_prompts(outputs: list[SequenceOutput], log_probs: Explained) -> list[SequenceOutput]:
    """Add the log-probabilities of prompts; a sequence may have no other output."""
    by_id = {output.id: output for output in outputs}
    for id, told in log_probs.items():
        by_id[id] = replace(by_id.get(id, SequenceOutput(id)), prompt_log_probs=told)
    return list(by_id.values())


def _num_chosen(output: SequenceOutput) -> int:
    """Return how many tokens were chosen for the output, including an end token."""
    is_stopped = output.end is not None and output.end.reason == "stop"
    return len(output.tokens) + is_stopped
