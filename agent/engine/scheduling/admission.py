"""Admission: which waiting sequences begin now, and with which computed prefix.

Sequences begin in order of rank. If there is no room for a sequence, later sequences wait too, so
that large sequences do not wait for ever. A sequence whose prefix another sequence is computing
waits for the prefix instead of computing it again; later sequences need not wait.

There must be room for more than the next step. A sequence begins if there is room for the rest of
its prompt, for the rest of the prompts being read, and for some more tokens of each sequence. So a
preempted sequence is not preempted again after one token.

A parked prefix is copied back first, limited by the cells that may be copied before each step. The
sequence that begins with the prefix waits; later sequences need not wait.

If the disk has more of a prompt than memory, the sequence waits for the read, if reading is faster
than computing (`disk_reads`). Later sequences need not wait.
"""

from ..kv_cache.prefix_tree import Found
from ..prompt_store.stored_prompt import StoredPrompt
from .progress import Progress
from .state import SchedulerState

HEADROOM = 16
"""Tokens for which each sequence must have room, so that no sequence is soon preempted."""

WORTH_WAITING = 8
"""Minimum tokens of a prefix that is worth waiting for: fewer take no longer than a step."""


class Admission:
    """Moves sequences from the queue to slots, with shared cells or a state to load."""

    def __init__(self, state: SchedulerState) -> None:
        self._queue = state.queue
        self._memory = state.memory
        self._disk_reads = state.disk_reads
        self._tally = state.tally

    def admit(self) -> None:
        """Begin as many waiting sequences as possible."""
        for one in self._queue.candidates:
            found = self._find(one)
            loads = found.num_stored > max(found.length, found.promised)
            ready = found.num_stored if loads else found.length
            if found.promised_by is not None and found.promised >= ready + WORTH_WAITING:
                self._memory.fetch(Found(found.promised, found.promised_by))
            elif not loads and self._disk_reads.waits(one, found.length):
                self._disk_reads.ask(one, found.length)
                if self._has_room(one, found):
                    self._memory.fetch(found)
            elif not self._has_room(one, found, loads=loads):
                break
            elif (stored := one.stored) is not None and loads:
                if not self._begin_stored(one, found, stored.first(found.num_stored)):
                    break
            else:
                self._begin(one, found)

    def _begin_stored(self, one: Progress, found: Found, stored: StoredPrompt) -> bool:
        """Begin `one` with the prefix that is `stored` for it.

        Returns whether later sequences may begin.
        """
        memory = self._memory
        source = found.source if stored.start else None
        if source is not None and memory.fetch(Found(stored.start, source)) is None:
            return True  # it comes back in several steps
        holder = memory.adopt(stored, source)
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
        """Begin `one` with the prefix `found`, if it is in the cells or restored at once."""
        present = self._memory.fetch(found)
        if present is not None:
            self._enter(one, present)

    def _find(self, one: Progress) -> Found:
        return self._memory.find(one.history.keys, one.most_reused, one.stored)

    def _enter(self, one: Progress, found: Found) -> None:
        one.place = self._memory.enter(
            self._queue.begin(one),
            one.history.keys,
            found,
            most_shared=one.most_shared,
            marks=one.marks,
            borders=one.borders,
        )
        one.stored = None
        self._tally.shared(one.start(found.length))

    def _has_room(self, one: Progress, found: Found, *, loads: bool = False) -> bool:
        running, memory = self._queue.running.values(), self._memory
        if not running:
            return True  # alone it fits: what does not is refused before it waits
        still_to_read = sum(other.num_pending for other in running)
        headroom = sum(min(HEADROOM, other.num_to_gain) for other in (one, *running))
        if loads and one.stored is not None:
            needed = max(len(one.history), len(one.stored.prompt))
        else:
            needed = memory.num_needed(found, len(one.history))
        return needed + still_to_read + headroom <= memory.room.num_available
