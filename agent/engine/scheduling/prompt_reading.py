"""Which prompts the next step reads, and how much of them.

Only those that can be read together: of one adapter; of others before batch requests
(`background`); tokens or media, since these go in batches of their own. The prompt that is to be
read next (`turns.fair_order`) decides. A picture that the model looks at as a whole goes alone, and
waits until there is room for all of it. Prompts that are explained share the logits that a step can
give.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..kv_cache.memory import Memory
from ..sequence import SequenceId
from ..statistics import Tally
from ..turns.fair_order import FairOrder
from ..turns.step_mode import StepMode
from .background import Background
from .prefill_budget import PrefillBudget
from .progress import Progress
from .queue import SequenceQueue


@dataclass(frozen=True, slots=True)
class Prompts:
    """What can be read in a step, beside `num_streaming` sequences that generate.

    `wanted` says how many tokens of each of `readers`, `all_wanted` the same of all who read.
    """

    readers: tuple[Progress, ...]
    wanted: Mapping[SequenceId, int]
    all_wanted: Mapping[SequenceId, int]
    num_streaming: int

    @property
    def num_wanted(self) -> int:
        """How many tokens of all `readers` together."""
        return sum(self.wanted.values())

    @property
    def has_media(self) -> bool:
        """Whether they are media."""
        return any(one.reads_media for one in self.readers)

    @property
    def is_whole(self) -> bool:
        """Whether they are one picture that is looked at as a whole."""
        return any(one.num_at_once for one in self.readers)


class PromptReading:
    """Remembers only whose turn it is."""

    def __init__(
        self,
        queue: SequenceQueue,
        memory: Memory,
        budget: PrefillBudget,
        step_mode: StepMode,
        background: Background,
        tally: Tally,
        *,
        most_scored: int,
    ) -> None:
        self._queue = queue
        self._memory = memory
        self._budget = budget
        self._step_mode = step_mode
        self._background = background
        self._tally = tally
        self._most_scored = most_scored
        self._order = FairOrder()

    def choose(
        self, reading: Mapping[int, Progress], awaited: Mapping[int, int], num_streaming: int
    ) -> Prompts:
        """Of those who read, by slot. Others wait for the first `awaited` tokens of a slot."""
        all_wanted = self._wanted(reading, awaited)
        if not all_wanted:
            return Prompts((), {}, {}, num_streaming)
        wanted = self._background.first(reading.values(), all_wanted)
        first = self._order.first(wanted)
        adapter = next(one.adapter for one in reading.values() if one.id == first)
        readers = tuple(
            one for one in reading.values() if one.id in wanted and one.adapter == adapter
        )
        return Prompts(
            readers, {one.id: wanted[one.id] for one in readers}, all_wanted, num_streaming
        )

    def most(self, prompts: Prompts) -> int:
        """Most tokens of `prompts` that time and cells allow."""
        if not prompts.readers:
            return 0
        num_wanted = prompts.num_wanted
        first = self._order.first(prompts.wanted)
        depth = next(one.num_computed for one in prompts.readers if one.id == first)
        num_moved = self._memory.allowance.num_moved
        num_in_time = self._budget.prompt_tokens(
            prompts.num_streaming, num_wanted, depth=depth, num_moved=num_moved
        )
        num_cells = self._memory.num_available - prompts.num_streaming
        most = self._background.most_read(
            prompts.readers, min(num_in_time, num_cells), self._tally.now
        )
        if prompts.is_whole:
            return num_wanted if most > 0 and num_wanted <= num_cells else 0
        # Of several prompts the next one fills what the first leaves over.
        return self._step_mode.chunk(most, num_wanted) if len(prompts.readers) == 1 else most

    def share(self, prompts: Prompts, most: int, *, num_others: int) -> dict[SequenceId, int]:
        """What each gets of `most` tokens, for which cells are freed beside `num_others`.

        Both together may be as many as `most()` and the streams, and no more.
        """
        num_read = self._make_room(min(most, prompts.num_wanted), num_others)
        if num_read:
            # Now that it is known what is parked for it, in what is left of the time.
            num_read = min(num_read, self.most(prompts))
        if prompts.is_whole and num_read < prompts.num_wanted:
            num_read = 0  # until there is room for all of it
        return self._order.share(prompts.all_wanted, num_read, among=prompts.wanted)

    def _make_room(self, num_read: int, num_others: int) -> int:
        """For how many of `num_read` tokens there is room, beside a cell for each of the others.

        Where a prefix has to be parked for them, a part of the prompt may have to wait.
        """
        num_read = max(0, num_read)
        num_free = self._memory.make_room(num_others + num_read, num_urgent=num_others)
        return min(num_read, num_free - num_others)

    def _wanted(
        self, reading: Mapping[int, Progress], awaited: Mapping[int, int]
    ) -> dict[SequenceId, int]:
        """Where others wait for a part of a prompt, its chunk ends there: they go on sooner."""
        num_scoring = sum(one.is_scoring for one in reading.values())
        most_scored = self._most_scored // num_scoring if num_scoring else 0
        room = self._memory.num_available - self._queue.num_streaming
        wanted = {}
        for slot, one in reading.items():
            if one.num_at_once and one.num_at_once > room:
                continue
            num = awaited[slot] - one.num_computed if slot in awaited else one.num_pending
            num = one.num_at_once or min(num, one.num_in_span)
            wanted[one.id] = min(num, one.num_readable(most_scored)) if one.is_scoring else num
        return self._of_a_kind(reading, wanted)

    def _of_a_kind(
        self, reading: Mapping[int, Progress], wanted: dict[SequenceId, int]
    ) -> dict[SequenceId, int]:
        """Of `wanted` tokens, media or a picture as a whole, whichever is first."""
        media = {one.id for one in reading.values() if one.reads_media and one.id in wanted}
        if not media:
            return wanted
        first = self._order.first(self._background.first(reading.values(), wanted))
        whole = {one.id for one in reading.values() if one.num_at_once}
        if first in whole:
            return {first: wanted[first]}
        are_media = first in media
        return {
            id: num for id, num in wanted.items() if (id in media) == are_media and id not in whole
        }
