"""Admission: which waiting sequences begin now, and with which computed prefix.

Sequences begin in order of rank. If there is no room for one, later ones wait too, so that large
ones do not wait for ever. A sequence whose prefix another sequence is computing waits for the
prefix instead of computing it again; later ones need not wait.

There must be room for more than the next step. A sequence begins if there is room for the rest of
its prompt, for the rest of the prompts being read, and for some more tokens of each sequence. So a
preempted sequence is not preempted again after one token.

A parked prefix is copied back first, limited by the cells that may be copied before each step. The
sequence that begins with it waits; later ones need not.

If states can only be copied whole, one state is loaded before a step. If that would take too long
while others stream, the prompt is computed instead.

If the disk has more of a prompt than memory, the sequence waits for the read, if reading is faster
than computing (`disk_reads`). Later ones need not wait.
"""

from ..kv_cache.prefix_tree import Found
from ..prompt_store.stored_prompt import StoredPrompt
from .progress import Progress
from .state import SchedulerState

HEADROOM = 16
"""Tokens for which each sequence must have room before one has to be preempted."""

WORTH_WAITING = 8
"""Minimum tokens of a prefix to wait for; computing fewer takes no longer than a step."""


class Admission:
    """Moves sequences from the queue to slots, with shared cells or a state to load."""

    def __init__(self, state: SchedulerState) -> None:
        self._queue = state.queue
        self._memory = state.memory
        self._can_keep = state.capacity.can_keep
        self._budget = state.budget
        self._disk_reads = state.disk_reads
        self._tally = state.tally

    def admit(self) -> None:
        """Begin as many waiting sequences as possible."""
        num_streaming = self._queue.num_streaming
        for one in self._queue.candidates:
            found = self._find(one)
            num_loaded = self._num_loadable(one, found, num_streaming)
            if num_loaded <= max(found.length, found.promised):
                num_loaded = 0
            ready = max(found.length, num_loaded)
            if found.promised_by is not None and found.promised >= ready + WORTH_WAITING:
                self._memory.fetch(Found(found.promised, found.promised_by))
            elif not num_loaded and self._disk_reads.waits(one, found.length):
                self._disk_reads.ask(one, found.length)
                if self._has_room(one, found):
                    self._memory.fetch(found)
            elif not self._has_room(one, found, num_loaded):
                break
            elif (stored := one.stored) is not None and num_loaded:
                if not self._begin_stored(one, found, stored, num_loaded):
                    break
            else:
                self._begin(one, found)

    def _begin_stored(
        self, one: Progress, found: Found, stored: StoredPrompt, num_loaded: int
    ) -> bool:
        """Begin `one` with the prefix that is `stored` for it.

        Returns whether later ones may begin.
        """
        memory = self._memory
        if not self._can_keep:
            if not memory.allowance.num_moved:  # one whole state is copied before a step
                self._enter(one, Found(num_loaded), stored)
            return True
        source = found.source if stored.start else None
        if source is not None and memory.fetch(Found(stored.start, source)) is None:
            return True  # it comes back in several steps
        holder = memory.adopt(stored.first(num_loaded), source)
        one.adopted_as = None if one.num_read_from_disk else holder  # to tell who asked for it
        one.stored = None
        found = self._find(one)
        if not self._has_room(one, found):
            return False
        if self._disk_reads.waits(one, found.length):
            self._disk_reads.ask(one, found.length)
            memory.fetch(found)
        else:
            self._begin(one, found)
        return True

    def _begin(self, one: Progress, found: Found) -> None:
        """Begin with the prefix that was found, if it is in the cells or is restored at once."""
        present = self._memory.fetch(found)
        if present is not None:
            self._enter(one, present)

    def _find(self, one: Progress) -> Found:
        return self._memory.find(one.history.keys, one.most_reused)

    def _enter(self, one: Progress, found: Found, stored: StoredPrompt | None = None) -> None:
        one.place = self._memory.enter(
            self._queue.begin(one),
            one.history.keys,
            found,
            stored=stored,
            most_shared=one.most_shared,
            marks=one.marks,
            borders=one.borders,
        )
        one.stored = None
        self._tally.shared(one.start(found.length))

    def _num_loadable(self, one: Progress, found: Found, num_streaming: int) -> int:
        """Return how many tokens of the prefix that is stored for `one` it can begin with."""
        memory, stored = self._memory, one.stored
        if stored is None or not stored.is_usable:
            return 0
        if stored.start and (found.length < stored.start or not self._can_keep):
            return 0
        num_tokens = len(stored.prompt)
        if not self._can_keep and not self._budget.may_copy_whole(num_streaming, num_tokens):
            return 0
        if num_tokens > memory.room.num_available:
            return 0
        return memory.num_loadable(stored, one.history.keys, one.most_reused)

    def _has_room(self, one: Progress, found: Found, num_loaded: int = 0) -> bool:
        running, memory = self._queue.running.values(), self._memory
        if not running:
            return True  # alone it fits: what does not is refused before it waits
        still_to_read = sum(other.num_pending for other in running)
        headroom = sum(min(HEADROOM, other.num_to_gain) for other in (one, *running))
        if num_loaded and one.stored is not None:
            needed = max(len(one.history), len(one.stored.prompt))
        else:
            needed = memory.num_needed(found, len(one.history))
        return needed + still_to_read + headroom <= memory.room.num_available
