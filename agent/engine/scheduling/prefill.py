"""Prefill: which prompts the next step reads, and how many tokens of them.

**Which.** Only prompts that can be read together: of one adapter; of other requests before batch
requests; tokens or media, since these need separate batches. The prompt that is first in
`FairOrder` decides. A picture to which the model attends as a whole is read alone, and waits until
there is room for all of it.

**How much.** As many tokens as fit the seconds of a step (`step_budget`), by the measured cost of
prefill (`cost.step_cost`), the batch and the free cells. The cost of the very first step is
unknown, so it gets few tokens. While there are other requests, batch requests get only a part of
these tokens. Prompts with log-probabilities share the logits that a step can give.

**With streams, or alone.** A mixed step reads the weights once instead of twice, which pays while
there is little to read. On CPUs it no longer pays if a batch is large enough for llama.cpp's tiled
attention. Tiled attention computes all queries of a tile against all cells that any of them needs,
so rows of different sequences are computed against each other's cells. A chunk of 64 tokens with 7
streams takes 523 ms in one step, and 481 ms in two; a chunk of 32 takes 278 ms and 319 ms. If a
mixed step does not pay, steps that generate and steps that read take turns.

A partial tile costs as much as a full tile. Fewer tokens than a tile cost even more at later
positions: 60 tokens take 850 ms at position 1,200, and 360 ms at the start. So the remainder is
read first, and then whole tiles to the end.

If each sequence has a cache of its own, llama.cpp computes parts of a batch that differ in length
one after the other. Then a mixed step never pays.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from ..sequence import SequenceId
from .progress import Progress
from .state import SchedulerState
from .step_budget import StepBudget

MIN_CHUNK = 8
"""Minimum prompt tokens of a step, so that slow prompts take hundreds of steps, not thousands."""

FIRST_CHUNK = 128
"""Prompt tokens of the very first step, whose cost is unknown."""

DRAFTED = 0.25
"""The part of a step's prompt tokens that drafts may take."""

SHARE = 4
"""While there are other requests, one in this many tokens is for batch prompts."""

TILE = 64
"""Batch prompts get at least this many tokens, if time allows: fewer tokens cost as much."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts that a step can read, with `num_streaming` sequences that generate.

    `wanted` is the number of tokens of each of the `readers`. `all_wanted` is the number for every
    reading sequence.
    """

    readers: tuple[Progress, ...]
    wanted: Mapping[SequenceId, int]
    all_wanted: Mapping[SequenceId, int]
    num_streaming: int

    @property
    def num_wanted(self) -> int:
        """The number of tokens of all `readers` together."""
        return sum(self.wanted.values())

    @property
    def has_media(self) -> bool:
        """Return whether the readers read media."""
        return any(one.reads_media for one in self.readers)

    @property
    def is_whole(self) -> bool:
        """Return whether the prompts are one picture to which the model attends as a whole."""
        return any(one.num_at_once for one in self.readers)


class Prefill:
    """Chooses and sizes prompt chunks. Its only state is the order of prompts."""

    def __init__(self, state: SchedulerState) -> None:
        self._queue = state.queue
        self._memory = state.memory
        self._budget = state.budget
        self._background = state.background
        self._tally = state.tally
        self._batch_size = state.capacity.batch_size
        self._most_scored = state.capacity.most_scored
        self._most_mixed = state.capacity.most_mixed
        self._can_mix = not state.capacity.num_streams
        self._order = FairOrder()

    def choose(self, reading: Mapping[int, Progress], num_streaming: int) -> Prompts:
        """Choose the prompts that the next step can read; `reading` is by slot."""
        all_wanted = self._wanted(reading) if reading else {}
        if not all_wanted:
            return Prompts((), {}, {}, num_streaming)
        wanted = urgent_first(reading.values(), all_wanted)
        first = self._order.first(wanted)
        adapter = next(one.adapter for one in reading.values() if one.id == first)
        readers = tuple(
            one for one in reading.values() if one.id in wanted and one.adapter == adapter
        )
        return Prompts(
            readers, {one.id: wanted[one.id] for one in readers}, all_wanted, num_streaming
        )

    def most(self, prompts: Prompts) -> int:
        """Return the maximum tokens of `prompts` that time and cells allow."""
        if not prompts.readers:
            return 0
        num_wanted = prompts.num_wanted
        first = self._order.first(prompts.wanted)
        num_in_time = tokens_in_time(
            self._budget,
            self._batch_size,
            prompts.num_streaming,
            num_wanted,
            depth=next(one.num_computed for one in prompts.readers if one.id == first),
            num_moved=self._memory.allowance.num_moved,
        )
        num_cells = self._memory.room.num_available - prompts.num_streaming
        most = self._given_way(prompts.readers, min(num_in_time, num_cells))
        if prompts.is_whole:
            return num_wanted if most > 0 and num_wanted <= num_cells else 0
        if len(prompts.readers) > 1:
            return most  # the next one fills what the first leaves over
        return whole_tiles(most, num_wanted, tile=self._most_mixed + 1)

    def is_alone(
        self, num_generating: int, num_prompt_tokens: int, *, is_media: bool = False
    ) -> bool:
        """Return whether a step reads the prompt tokens without the generating sequences.

        Media always need a step of their own: llama.cpp takes them in separate batches. The
        sequences that wait for such a step are next (`AdapterTurns`).
        """
        if not num_generating or not num_prompt_tokens:
            return False
        is_dear = num_generating + num_prompt_tokens > self._most_mixed
        return is_dear or is_media or not self._can_mix

    def most_drafted(self, num_generating: int, num_pending: int, num_prompt_tokens: int) -> int:
        """Return how many tokens may be drafted; drafts take a part of the prompts' tokens.

        If prompts have `num_pending` tokens, drafts take a part of the `num_prompt_tokens`, but
        leave the minimum of a step.
        """
        if not num_pending:
            return self._batch_size - num_generating
        return min(floor(DRAFTED * num_prompt_tokens), num_prompt_tokens - _least(num_pending))

    def share(self, prompts: Prompts, most: int, *, num_others: int) -> dict[SequenceId, int]:
        """Return each prompt's share of `most` tokens. Frees cells for them and for `num_others`.

        `most` and `num_others` together must not exceed `most()` and the streams.
        """
        num_read = self._make_room(min(most, prompts.num_wanted), num_others)
        if num_read:
            # Now that it is known what is parked for it, in what is left of the time.
            num_read = min(num_read, self.most(prompts))
        if prompts.is_whole and num_read < prompts.num_wanted:
            num_read = 0  # until there is room for all of it
        return self._order.share(prompts.all_wanted, num_read, among=prompts.wanted)

    def _given_way(self, readers: Collection[Progress], most: int) -> int:
        """Return how many tokens of these prompts to read if time and cells allow `most`."""
        if not all(one.is_background for one in readers):
            return most
        return batch_share(most) if self._background.are_others_here(self._tally.now) else most

    def _make_room(self, num_read: int, num_others: int) -> int:
        """Free cells; return how many of `num_read` tokens fit in addition to `num_others` cells.

        If a prefix has to be parked for them, a part of the prompt may have to wait.
        """
        num_read = max(0, num_read)
        num_free = self._memory.make_room(num_others + num_read, num_urgent=num_others)
        return min(num_read, num_free - num_others)

    def _wanted(self, reading: Mapping[int, Progress]) -> dict[SequenceId, int]:
        """Return the tokens that each sequence can read, up to the memory's next border."""
        num_scoring = sum(one.is_scoring for one in reading.values())
        most_scored = self._most_scored // num_scoring if num_scoring else 0
        room = self._memory.room.num_available - self._queue.num_streaming
        wanted = {}
        for slot, one in reading.items():
            if one.num_at_once and one.num_at_once > room:
                continue
            border = self._memory.next_border(slot)
            num = min(len(one.history), border or len(one.history)) - one.num_computed
            num = one.num_at_once or min(num, one.num_in_span)
            wanted[one.id] = min(num, one.num_readable(most_scored)) if one.is_scoring else num
        return self._of_a_kind(reading, wanted)

    def _of_a_kind(
        self, reading: Mapping[int, Progress], wanted: dict[SequenceId, int]
    ) -> dict[SequenceId, int]:
        """Return the part of `wanted` of the same kind: tokens, media, or a whole picture."""
        media = {one.id for one in reading.values() if one.reads_media and one.id in wanted}
        if not media:
            return wanted
        first = self._order.first(urgent_first(reading.values(), wanted))
        whole = {one.id for one in reading.values() if one.num_at_once}
        if first in whole:
            return {first: wanted[first]}
        are_media = first in media
        return {
            id: num for id, num in wanted.items() if (id in media) == are_media and id not in whole
        }


def tokens_in_time(
    budget: StepBudget,
    batch_size: int,
    num_generating: int,
    num_pending: int,
    *,
    depth: int = 0,
    num_moved: int = 0,
) -> int:
    """Return how many of `num_pending` tokens from position `depth` fit into a step's time.

    The result is at least one, and can exceed `num_pending`. Copying the states of `num_moved`
    cells takes a part of the time.
    """
    seconds = budget.seconds(num_generating) - budget.moves.seconds(num_moved)
    fitting = budget.cost.prefill_within(
        max(0.0, seconds), num_pending, depth=depth, num_generating=num_generating
    )
    if not budget.cost.knows_prefill:
        fitting = FIRST_CHUNK
    return floor(min(batch_size - num_generating, max(fitting, _least(num_pending))))


def _least(num_pending: int) -> int:
    return min(MIN_CHUNK, num_pending)


def whole_tiles(most: int, num_wanted: int, *, tile: int) -> int:
    """Return how many tokens of a prompt to read now: at most `most`, the number that time allows.

    The tokens that remain of `num_wanted` are then a multiple of `tile`. Returns `most` if it is
    less than a tile, or enough for all.
    """
    if not tile <= most < num_wanted:
        return most
    return most - (most - num_wanted) % tile


def urgent_first(
    reading: Iterable[Progress], wants: Mapping[SequenceId, int]
) -> dict[SequenceId, int]:
    """Return the `wants` of requests other than batch requests; all if there are no others."""
    urgent = {one.id for one in reading if not one.is_background}
    found = {id: wanted for id, wanted in wants.items() if id in urgent and wanted}
    return found or dict(wants)


def batch_share(most: int) -> int:
    """Return how many of `most` tokens go to batch requests while there are other requests."""
    return max(min(most, TILE), most // SHARE)


# ---- the order of prompts


def split_fairly(wants: Sequence[float], budget: float) -> list[float]:
    """Split `budget` into one part for each want; no part is larger than its want.

    Max-min fairness: the parts are equal, and tokens that small wants leave go to larger wants.
    """
    shares = [0.0] * len(wants)
    num_left = len(wants)
    for index in sorted(range(len(wants)), key=wants.__getitem__):
        shares[index] = min(wants[index], budget / num_left)
        budget -= shares[index]
        num_left -= 1
    return shares


_DIGITS = 6
"""Decimals of tokens left; smaller differences are rounding errors."""


class FairOrder:
    """The order in which prompts are read: first the prompt that processor sharing finishes first.

    Processor sharing reads all prompts at the same pace. That is fair, but all finish late: eight
    equal prompts finish when the eighth does. Here prompts are read one after the other, in the
    order in which they would finish under sharing. Then none finishes later than under sharing,
    most finish far earlier, and no prompt waits for ever behind newcomers. This is the Fair
    Sojourn Protocol (E. J. Friedman, S. G. Henderson: Fairness and efficiency in web server
    protocols, SIGMETRICS 2003).

    The class simulates the sharing: the tokens that would be left of each prompt. Invariant: the
    total of tokens left under sharing equals the real total. So the simulated sharing ends when
    everything is read.
    """

    def __init__(self) -> None:
        self._ahead: dict[SequenceId, float] = {}
        """Tokens by which each prompt is ahead of sharing, or behind if negative.

        A finished prompt stays here until sharing would finish it, in the order of finishing.
        """

    def __len__(self) -> int:
        return len(self._ahead)

    def first(self, wants: Mapping[SequenceId, int]) -> SequenceId:
        """Return the prompt to read next; there must be one."""
        return next(id for id in self._left(wants) if id in wants)

    def share(
        self,
        wants: Mapping[SequenceId, int],
        budget: int,
        among: Container[SequenceId] | None = None,
    ) -> dict[SequenceId, int]:
        """Split `budget` tokens among prompts; return the tokens to read of each prompt.

        `wants` has the tokens left of each prompt. If `among` is given, only these prompts get
        tokens. Prompts that get none are omitted.
        """
        if not wants and not self._ahead:
            return {}
        left = self._left(wants)
        readable = wants if among is None else among
        shares = _in_turn([id for id in left if id in wants and id in readable], wants, budget)
        num_left = sum(wants.values()) - sum(shares.values())
        dues = split_fairly([*left.values()], max(0.0, sum(left.values()) - num_left))
        self._ahead = {
            id: round(left[id] - due, _DIGITS) - wants.get(id, 0) + shares.get(id, 0)
            for id, due in zip(left, dues, strict=True)
        }
        self._forget_those_through(wants)
        return shares

    def check_integrity(self) -> None:
        """Raise `RuntimeError` unless the tokens ahead equal the tokens behind."""
        if abs(total := sum(self._ahead.values())) > len(self._ahead) * 10**-_DIGITS:
            raise RuntimeError(
                f"the prompts together are {total} tokens ahead of fair sharing, which must be 0"
            )

    def _left(self, wants: Mapping[SequenceId, int]) -> dict[SequenceId, float]:
        """Return the tokens left of each prompt under sharing, in the order of finishing."""
        left = {id: max(0.0, wants.get(id, 0) + ahead) for id, ahead in self._ahead.items()}
        left |= {id: want for id, want in wants.items() if id not in left}
        # Sorting keeps the order of those that would be through already.
        return {id: left[id] for id in sorted(left, key=left.__getitem__)}

    def _forget_those_through(self, wants: Mapping[SequenceId, int]) -> None:
        for id in [id for id, ahead in self._ahead.items() if id not in wants and not ahead]:
            del self._ahead[id]


def _in_turn(
    order: list[SequenceId], wants: Mapping[SequenceId, int], budget: int
) -> dict[SequenceId, int]:
    shares = {}
    for id in order:
        if not budget:
            break
        shares[id] = min(wants[id], budget)
        budget -= shares[id]
    return shares
