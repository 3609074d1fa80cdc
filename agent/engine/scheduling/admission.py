"""Admission: which waiting sequences begin now, and with which computed prefix.

In order of rank: where there is no room for one, those behind it wait too, so that large ones do
not wait for ever. A sequence whose prefix another one is computing waits for that and does not
compute it again; those behind it need not wait.

Room is for more than the next step: a sequence begins when the rest of its prompt, the rest of the
prompts that are being read, and some further tokens for each sequence fit. So a preempted sequence
is not preempted again after one token.

A parked prefix is copied back first, as many cells before a step as may be copied then. The
sequence that begins with it waits for that; those behind it need not.

Where a state can only be had whole, one is loaded before a step, and none that would take too long
beside streams: then the prompt is computed.

Where the disk has more of a prompt than memory, the sequence waits until that is read, if reading
is faster than computing (`disk_reads`); those behind it need not.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from ..kv_cache.memory import Memory
from ..kv_cache.prefix_tree import Found
from .progress import Progress

HEADROOM = 16
"""Tokens that each sequence can gain before one has to be preempted."""

WORTH_WAITING = 8
"""Shorter prefixes are computed again rather than waited for: that takes no longer than a step."""


@dataclass(frozen=True, slots=True)
class Begin:
    """`one` begins with what was `found`, or with `num_loaded` tokens of what is stored.

    All of what was found is in the cells.
    """

    one: Progress
    found: Found
    num_loaded: int = 0


@dataclass(frozen=True, slots=True)
class Await:
    """Somebody waits for `slot` to have computed its first `length` tokens."""

    slot: int
    length: int


@dataclass(frozen=True, slots=True)
class Keep:
    """The first `length` tokens of what is stored for `one` become a kept prefix.

    What is not stored of them it shares with `source`.
    """

    one: Progress
    length: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """`one` waits for what is on disk beyond its first `num_ready` tokens."""

    one: Progress
    num_ready: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """What was `found` is parked and has to come back."""

    found: Found


def admit(
    waiting: Sequence[Progress],
    running: Collection[Progress],
    memory: Memory,
    may_load: Callable[[int], bool] = lambda _: True,
    waits_for_disk: Callable[[Progress, int], bool] = lambda *_: False,
) -> Iterator[Begin | Await | Keep | Fetch | Read]:
    """What becomes of `waiting`, which are in order of rank and each have a slot to go to.

    Lazy: the caller carries out each decision before it asks for the next. `may_load` says whether
    the whole state of so many tokens may be copied beside those who stream, `waits_for_disk`
    whether one that could begin with so many tokens waits for more of them.
    """
    for one in waiting:
        found = memory.find(one.history.keys, one.most_reused)
        num_loaded = _num_loadable(one, found, memory, may_load)
        if num_loaded <= max(found.length, found.promised):
            num_loaded = 0
        ready = max(found.length, num_loaded)
        if found.promised_by is not None and found.promised >= ready + WORTH_WAITING:
            yield Await(found.promised_by, found.promised)
        elif not num_loaded and waits_for_disk(one, found.length):
            yield Read(one, found.length)
            if not memory.is_present(found) and _has_room(one, found, 0, running, memory):
                yield Fetch(found)
        elif not _has_room(one, found, num_loaded, running, memory):
            return
        elif num_loaded and not memory.has_pieces and memory.allowance.num_moved:
            continue  # another whole state is copied before this step
        elif num_loaded and not memory.can_keep:
            yield Begin(one, found, num_loaded)
        else:
            if num_loaded:
                if not _has_beginning(one, found, memory):
                    yield Fetch(found)
                    if not _has_beginning(one, found, memory):
                        continue  # it comes back in several steps
                yield Keep(one, num_loaded, _beginning(one, found))
                found = memory.find(one.history.keys, one.most_reused)
                if not _has_room(one, found, 0, running, memory):
                    return
                if waits_for_disk(one, found.length):
                    yield Read(one, found.length)
                    yield Fetch(found)
                    continue
            if not memory.is_present(found):
                yield Fetch(found)
                found = memory.find(one.history.keys, one.most_reused)
            if memory.is_present(found):
                yield Begin(one, found)


def _beginning(one: Progress, found: Found) -> int | None:
    """Who has what comes before the stored part of a prompt, if anything does."""
    return found.source if one.stored is not None and one.stored.start else None


def _has_beginning(one: Progress, found: Found, memory: Memory) -> bool:
    """Whether that is in the cells."""
    source = _beginning(one, found)
    if source is None or one.stored is None:
        return True
    return memory.is_present(Found(one.stored.start, source))


def _num_loadable(
    one: Progress, found: Found, memory: Memory, may_load: Callable[[int], bool]
) -> int:
    """How much of what is stored for `one` it can begin with."""
    if one.stored is None or not one.stored.is_usable:
        return 0
    if one.stored.start and (found.length < one.stored.start or not memory.can_keep):
        return 0
    if not memory.has_pieces and not may_load(len(one.stored.prompt)):
        return 0
    if len(one.stored.prompt) > memory.num_available:
        return 0
    return memory.num_loadable(one.stored, one.history.keys, one.most_reused)


def _has_room(
    one: Progress,
    found: Found,
    num_loaded: int,
    running: Collection[Progress],
    memory: Memory,
) -> bool:
    if not running or memory.has_own_cells:
        return True  # alone it fits: what does not is refused before it waits
    everybody = [one, *running]
    still_to_read = sum(other.num_pending for other in running)
    headroom = sum(min(HEADROOM, other.num_left) for other in everybody)
    if num_loaded and one.stored is not None:
        needed = max(len(one.history), len(one.stored.prompt))
    else:
        needed = memory.num_needed(found, len(one.history))
    return needed + still_to_read + headroom <= memory.num_available
