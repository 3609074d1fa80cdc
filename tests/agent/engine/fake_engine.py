"""An engine without a model, as strict as llama.cpp: it raises where llama.cpp would answer -1.

Its next token is a pure function of everything its slot's cells hold, so the tokens of a sequence
show at once whether cells were mixed up, lost, kept too long, or computed under another adapter.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from random import Random

from arriero.agent.engine.capacity import Capacity
from arriero.agent.engine.draft_model import DraftModel
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.loaded_model import LoadedModel
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Media, MediaPart, Prompt
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt, StoredState
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import (
    Aborted,
    Clear,
    Copy,
    Decoded,
    Discard,
    Edit,
    Failed,
    Free,
    NoRoom,
    NotLoaded,
    Offload,
    OffloadState,
    Outcome,
    Place,
    Put,
    ReadOut,
    Restore,
    RestoreState,
    Run,
    Step,
)
from arriero.shared.reports.model_info import ModelInfo

VOCAB_SIZE = 50
END_TOKEN = 0


class RuleBroken(Exception):
    """A step that llama.cpp would refuse, or not survive."""


class FakeVocab:
    """Token `n` stands for the byte after the space; a text for its bytes."""

    size = VOCAB_SIZE
    end_tokens = frozenset({END_TOKEN})
    suppressed_tokens: frozenset[int] = frozenset()
    bos_text = ""
    eos_text = "<end>"
    control_texts: tuple[str, ...] = ()
    fill_in = None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple(byte % VOCAB_SIZE for byte in text.encode())

    def piece(self, token: int) -> bytes:
        return bytes([32 + token])

    def name(self, token: int) -> bytes:
        return self.piece(token)


ADAPTERS = (None, "A*1.0", "B*1.0", "C*1.0")


def marked(tokens: Sequence[int], adapter: str | None) -> tuple[int, ...]:
    """What cells hold of `tokens` that are computed under `adapter`."""
    first = VOCAB_SIZE * ADAPTERS.index(adapter)
    return tuple(first + token for token in tokens)


MEDIA_MARKS = 14
"""Of each adapter; with those of tokens they are bytes."""


def media_marks(media: Media, first: int, count: int, adapter: str | None) -> tuple[int, ...]:
    """What cells hold of `count` positions of `media`, which are no tokens."""
    start = VOCAB_SIZE * len(ADAPTERS) + MEDIA_MARKS * ADAPTERS.index(adapter)
    places = range(first, first + count)
    return tuple(start + (5 * media.digest[0] + place) % MEDIA_MARKS for place in places)


def cells_of(prompt: Prompt) -> tuple[int, ...]:
    """What cells hold of `prompt`."""
    adapter = prompt.adapter
    return tuple(
        mark
        for span in prompt.spans
        for mark in (
            media_marks(span, 0, span.num_positions, adapter)
            if isinstance(span, Media)
            else marked(span, adapter)
        )
    )


def next_token(history: Sequence[int]) -> int:
    """What comes after `history`: a hash of all of it (FNV-1a, then mixed)."""
    value = 2166136261
    for token in history:
        value = (value ^ (token + 1)) * 16777619 % 2**32
    value = (value ^ (value >> 15)) * 0x2C1B3C6D % 2**32
    return (value ^ (value >> 13)) % VOCAB_SIZE


def score_of(history: Sequence[int], token: int) -> LogProbs:
    """How likely `token` was after `history`."""
    return LogProbs(token, -float(next_token([*history, token])))


def echoing(history: Sequence[int]) -> int:
    """Mostly what followed when the last two tokens were said before; still a function of all."""
    surprise = next_token(history)
    if surprise % 5:
        for end in range(len(history) - 1, 1, -1):
            if history[end - 2 : end] == history[-2:]:
                return history[end] % VOCAB_SIZE
    return surprise and 1 + surprise % 7


Following = Callable[[Sequence[int]], int]


def run_alone(
    sequence: NewSequence, context_size: int, following: Following = next_token
) -> tuple[tuple[int, ...], str]:
    """The tokens that `sequence` gets when it runs alone, and why it ends."""
    if sequence.prefill_only:
        return (), "stop"
    adapter = sequence.prompt.adapter
    history = list(cells_of(sequence.prompt))
    answer: list[int] = []
    shift = sequence.shift
    num_tokens = sequence.max_tokens
    if shift is None:
        room = context_size - len(history)
        num_tokens = room if num_tokens is None else min(room, num_tokens)
    while num_tokens is None or len(answer) < num_tokens:
        while shift is not None and len(history) >= context_size:
            del history[shift.num_kept : shift.num_kept + shift.num_discarded]
        token = following(history)
        if token == END_TOKEN:
            return tuple(answer), "stop"
        history += marked([token], adapter)
        answer.append(token)
    return tuple(answer), "length"


@dataclass(eq=False, slots=True)
class Cell:
    """What llama.cpp keeps of a token: its position, and which holders it belongs to.

    Of media it is `part`, its digest and which of its positions.
    """

    token: int
    position: int
    holders: set[int]
    part: tuple[bytes, int] | None = None

    def goes_on_in(self, other: "Cell") -> bool:
        """Whether `other` has the next position of the same media."""
        return self.part is not None and other.part == (self.part[0], self.part[1] + 1)


def state_of(tokens: Sequence[int]) -> bytes:
    """What an engine hands out of cells with `tokens`."""
    return b"state of " + bytes(tokens)


def stored_prompt(*tokens: int, piece: int = 3, adapter: str | None = None) -> StoredPrompt:
    """`tokens` as an engine would have handed them out, in pieces of so many."""
    cells = marked(tokens, adapter)
    parts = [cells[start : start + piece] for start in range(0, len(cells), piece)]
    pieces = tuple(Piece(len(part), state_of(part)) for part in parts)
    return StoredPrompt(Prompt(tokens, adapter=adapter), pieces)


def stored_checkpoints(
    *tokens: int, lengths: Sequence[int], block: int = 3, adapter: str | None = None
) -> StoredPrompt:
    """`tokens` as an engine would have handed them out that shares at checkpoints alone."""
    cells = marked(tokens, adapter)
    whole = stored_prompt(*tokens, piece=block, adapter=adapter)
    pieces = tuple(piece for piece in whole.pieces if piece.num_tokens == block)
    checkpoints = tuple(
        StoredState(
            length,
            state_of(cells[(length - 1) // block * block : length]),
            state_of(cells[:length]),
        )
        for length in lengths
    )
    return StoredPrompt(whole.prompt, pieces, checkpoints=checkpoints)


def _num_tokens(state: bytes) -> int:
    return len(state.removeprefix(b"state of "))


class FakeEngine:
    """`num_cells` bounds all cells together. `fail_next` spoils the step that comes next.

    Nothing can be chosen for the `broken` sequences.

    `believed_cells` is what it says that it has, which is the truth unless said otherwise.

    With `num_streams` each holder with cells has a stream, which an edit gave it.
    """

    def __init__(
        self,
        *,
        slots: int = 2,
        context_size: int = 64,
        batch_size: int = 16,
        most_mixed: int | None = None,
        num_cells: int | None = None,
        believed_cells: int | None = None,
        num_holders: int = 8,
        can_share: bool = True,
        can_shift: bool | None = None,
        checkpoint_gap: int = 0,
        block: int = 3,
        state_bytes: int = 2,
        most_parked: int = 1000,
        is_compact: bool = False,
        max_draft: int = 0,
        most_scored: int = 4,
        following: Following = next_token,
        cell_bytes: int = 0,
        seconds_per_moved_cell: float = 0.0,
        num_streams: int = 0,
        draft_model: DraftModel | None = None,
    ) -> None:
        self.draft_model = draft_model
        self.stream_of: dict[int, int] = {}
        self.seconds_per_moved_cell = seconds_per_moved_cell
        self.num_slots = slots
        self.context_size = context_size
        self.num_cells = slots * context_size if num_cells is None else num_cells
        self.capacity = Capacity(
            batch_size=batch_size,
            most_mixed=batch_size if most_mixed is None else most_mixed,
            num_cells=self.num_cells if believed_cells is None else believed_cells,
            num_holders=num_holders,
            can_share=can_share,
            can_shift=can_share if can_shift is None else can_shift,
            most_parked=most_parked,
            checkpoint_gap=checkpoint_gap,
            block=block,
            state_bytes=state_bytes if checkpoint_gap else 0,
            is_compact=is_compact,
            max_draft=max_draft,
            most_scored=most_scored,
            cell_bytes=cell_bytes,
            num_streams=num_streams,
        )
        self._following = following
        self.cells: list[Cell] = []
        self.failures: dict[SequenceId, str] = {}
        self.broken: set[SequenceId] = set()
        self.open_sequences: set[SequenceId] = set()
        self.num_cells_after_edits = 0
        self.steps: list[Step] = []
        self.is_freed = False
        self.must_stop = False
        self.adapters: dict[str, Path] = {}
        self.threads: list[tuple[int, int]] = []
        """Those that it was given, in their order."""
        self.on_load: Callable[[], None] = lambda: None  # while an adapter's file is read
        self._adapter: str | None = None
        self.blocks: dict[int, bytes] = {}  # in host memory
        self.put: set[int] = set()  # those of them that came from elsewhere
        self._bare: set[int] = set()  # holders with attention alone
        self._not_loaded: list[int] = []
        self._left_empty: set[int] = set()
        self._saved: list[bytes] = []
        self._spoiled: Failed | Aborted | NoRoom | None = None
        self._written = Random(0)
        info = ModelInfo(
            name="fake",
            architecture="fake",
            parameters=0,
            size_bytes=0,
            context_size=context_size,
        )
        self.model = LoadedModel(info, FakeVocab(), None)

    def _move_seconds(self, step: Step) -> float:
        return self.seconds_per_moved_cell * step.num_moved

    def use_threads(self, threads: int, threads_batch: int) -> None:
        self.threads.append((threads, threads_batch))

    def load(
        self, path: Path, options: LoadOptions, beside: Mapping[str, int] = {}
    ) -> "FakeEngine":
        """Stands where a worker loads its engine."""
        return self

    def open(self, sequence: NewSequence) -> None:
        if sequence.id in self.open_sequences:
            raise RuleBroken(f"sequence {sequence.id} is open already")
        self.open_sequences.add(sequence.id)

    def close(self, sequence_id: SequenceId) -> None:
        self.open_sequences.discard(sequence_id)

    def failure(self, sequence_id: SequenceId) -> str | None:
        if sequence_id not in self.open_sequences:
            raise RuleBroken(f"sequence {sequence_id} is not open")
        return self.failures.get(sequence_id)

    def load_adapter(self, digest: str, path: Path, turn: AbstractContextManager[object]) -> None:
        self.on_load()
        if path.name == "broken.gguf":
            raise ModelError(f"adapter file {path} cannot be used with this model: it is broken")
        with turn:
            self.adapters.setdefault(digest, path)

    def keep_adapters(self, digests: Collection[str], turn: AbstractContextManager[object]) -> None:
        with turn:
            self.adapters = {one: path for one, path in self.adapters.items() if one in digests}

    def free(self) -> None:
        self.is_freed = True

    def fail_next(self, outcome: Failed | Aborted | NoRoom) -> None:
        """Answer the next step that has runs with `outcome`, after writing some of its cells."""
        self._spoiled = outcome

    def fail_no_more(self) -> None:
        """Take `fail_next` back, if no step has met it."""
        self._spoiled = None

    def held(self, holder: int) -> list[Cell]:
        """The cells of `holder`, in the order of their positions."""
        own = [cell for cell in self.cells if holder in cell.holders]
        return sorted(own, key=lambda cell: cell.position)

    def tokens(self, holder: int) -> list[int]:
        """What `holder` consists of."""
        return [cell.token for cell in self.held(holder)]

    def stop(self, is_wanted: bool) -> None:
        self.must_stop = is_wanted

    def execute(self, step: Step) -> Outcome:
        self.steps.append(step)
        self._adapter = step.adapter
        for edit in step.edits:
            self._edit(edit)
        most = self.capacity.most_parked + self.num_put
        if not self.capacity.state_bytes and self.num_offloaded > most:
            raise RuleBroken("more is in host memory than there is room for")
        self.num_cells_after_edits = len(self.cells)
        saved, self._saved = tuple(self._saved), []
        if self._not_loaded:
            holders, self._not_loaded = tuple(self._not_loaded), []
            self._left_empty.clear()
            return NotLoaded(holders)
        if not step.runs:
            return Decoded((), saved=saved, move_seconds=self._move_seconds(step))
        self._check(step)
        if self._spoiled is not None:
            outcome, self._spoiled = self._spoiled, None
            self._spoil(step, outcome)
            return outcome
        if len(self.cells) + _size(step) > self.num_cells:
            return NoRoom()
        for run in step.runs:
            self._write(run, run.num_positions)
        whole = [run for run in step.runs if run.id not in self.broken]
        tokens = tuple(token for run in whole for token in self._choose(run))
        scores = {run.id: tuple(self._score(run)) for run in whole if run.scored}
        broken = self.broken & {run.id for run in step.runs if run.samples or run.scored}
        return Decoded(tokens, {}, scores, frozenset(broken), saved, self._move_seconds(step))

    # ---- cells

    def _edit(self, edit: Edit) -> None:
        match edit:
            case Place(holder, stream, source):
                self._place(holder, stream, source)
            case Clear(holder, start):
                self._check_holder(holder)
                self._remove(holder, start)
            case Copy(source, holder, length, is_bare=True):
                self._share_attention(source, holder, length)
            case Copy(source, holder, length, count=count):
                self._copy(source, holder, length, count)
            case Discard(slot, start, count):
                self._discard(slot, start, count)
            case Offload(holder, start, count, block):
                self._offload(block, self._state(holder, start, count))
            case OffloadState(holder, length, block):
                self._offload(block, self._standing(holder, length))
            case Restore(holder, start, count, block):
                self._restore(holder, start, count, self.blocks[block])
            case RestoreState(holder, length, block):
                self._restore_state(holder, length, self.blocks[block])
            case Put(block, state):
                self.put.add(block)
                self._offload(block, bytes(state))
            case ReadOut(block, start, count):
                self._saved.append(self._part(self.blocks[block], start, count))
            case Free(blocks):
                for block in blocks:
                    del self.blocks[block]
                self.put -= {*blocks}

    @property
    def num_offloaded(self) -> int:
        """Cells in host memory."""
        return sum(map(_num_tokens, self.blocks.values()))

    @property
    def num_put(self) -> int:
        """Cells in host memory that came from elsewhere."""
        return sum(_num_tokens(self.blocks[block]) for block in self.put)

    def _offload(self, block: int, state: bytes) -> None:
        if block in self.blocks:
            raise RuleBroken(f"{block} is in host memory already")
        self.blocks[block] = state

    def _part(self, state: bytes, start: int, count: int | None) -> bytes:
        tokens = state.removeprefix(b"state of ")
        if count is None or state != state_of(tokens):
            return state
        if len(part := tokens[start : start + count]) != count:
            raise RuleBroken(f"{count} cells from {start} on of a block of {len(tokens)}")
        return state_of(part)

    def _standing(self, holder: int, length: int) -> bytes:
        if not self.capacity.state_bytes:
            raise RuleBroken("this model has no state that cannot be cut")
        if len(self.held(holder)) != length or holder in self._bare:
            raise RuleBroken(f"holder {holder} does not stand at {length}")
        return state_of(self.tokens(holder))

    def _share_attention(self, source: int, holder: int, length: int) -> None:
        if source in self._not_loaded or source in self._left_empty:  # as the answer will say
            self._left_empty.add(holder)
            return
        own = self.held(source)[:length]
        if len(own) < length or self.held(holder) or holder < self.num_slots:
            raise RuleBroken(f"{length} cells of {source} cannot be those of {holder}")
        for cell in own:
            cell.holders.add(holder)
        self._bare.add(holder)

    def _restore(self, holder: int, start: int, count: int, state: bytes) -> None:
        self._check_room(count)
        if holder < self.num_slots and (self.capacity.state_bytes or start):
            raise RuleBroken(f"slot {holder} gets a block")
        tokens = state.removeprefix(b"state of ")
        if holder in self._left_empty:
            return
        is_lost = state != state_of(tokens) or holder in self._not_loaded
        if is_lost or (not self.capacity.state_bytes and self._is_full(count)):
            self._not_loaded.append(holder)
            return
        if len(tokens) != count or len(self.held(holder)) != start:
            raise RuleBroken(f"{count} cells from {start} on are not those of the block")
        if self.capacity.num_streams and holder not in self.stream_of:
            raise RuleBroken(f"holder {holder} has no stream")
        self._append(holder, tokens, start)
        if self.capacity.state_bytes:
            self._bare.add(holder)

    def _is_full(self, count: int) -> bool:
        return len(self.cells) + count > self.num_cells

    def _restore_state(self, holder: int, length: int, state: bytes) -> None:
        if holder in self._left_empty:
            return
        lost = state != state_of(state.removeprefix(b"state of "))
        if lost or holder in self._not_loaded:
            self._not_loaded.append(holder)
            return
        if state != state_of(self.tokens(holder)) or len(self.held(holder)) != length:
            raise RuleBroken(f"holder {holder} gets the state of others")
        self._bare.discard(holder)

    def _remove(self, holder: int, start: int) -> None:
        self._bare.discard(holder)
        if start and not self.capacity.can_share:
            raise RuleBroken(f"holder {holder} cannot give up a suffix")
        for cell in self.held(holder)[start:]:
            cell.holders.remove(holder)
        self.cells = [cell for cell in self.cells if cell.holders]

    def _place(self, holder: int, stream: int, source: int | None) -> None:
        if not 0 <= stream < self.capacity.num_streams:
            raise RuleBroken(f"no stream {stream}")
        if self.held(holder):
            raise RuleBroken(f"holder {holder} has cells already")
        if source is None and self._length_of(stream):
            raise RuleBroken(f"stream {stream} has cells already")
        if source is not None:
            if self.stream_of.get(source) != stream:
                raise RuleBroken(f"holder {source} does not have stream {stream}")
            for cell in self.held(source):
                cell.holders = {holder}
            if source in self._not_loaded or source in self._left_empty:
                self._left_empty.add(holder)
        self.stream_of = {one: at for one, at in self.stream_of.items() if at != stream}
        self.stream_of[holder] = stream

    def _length_of(self, stream: int) -> int:
        return sum(len(self.held(one)) for one, at in self.stream_of.items() if at == stream)

    def _choose(self, run: Run) -> Iterator[int]:
        if not run.samples:
            return
        said = self.tokens(run.slot)
        for drafted, end in zip_longest(
            run.draft, range(len(said) - run.num_drafted, len(said) + 1)
        ):
            token = self._following(said[:end])
            yield token
            if token != drafted:
                return

    def _score(self, run: Run) -> Iterator[LogProbs]:
        said = self.tokens(run.slot)
        start = run.start + run.first_scored
        for place, token in enumerate(run.scored, start=start + 1):
            if place < len(said) and said[place] % VOCAB_SIZE != token:
                raise RuleBroken(f"{token} is scored where there is {said[place]}")
            yield score_of(said[:place], token)

    def _copy(self, source: int, holder: int, length: int, count: int) -> None:
        if source in self._not_loaded or source in self._left_empty:  # as the answer will say
            self._left_empty.add(holder)
            return
        self._check_holder(source)
        self._check_holder(holder)
        if not self.capacity.can_share and not self.capacity.checkpoint_gap:
            raise RuleBroken("this model cannot share")
        is_bare = source in self._bare
        if not self.capacity.can_share and (is_bare or len(self.held(source)) != length):
            raise RuleBroken(f"holder {source} does not stand at {length}")
        if self.held(holder):
            raise RuleBroken(f"holder {holder} has cells already")
        own = self.held(source)
        cells = own[:length]
        if len(cells) < length or length < 1:
            raise RuleBroken(f"{length} cells copied of {len(cells)} of holder {source}")
        if length < len(own) and own[length - 1].goes_on_in(own[length]):
            raise RuleBroken(f"media of holder {source} are cut at {length}")
        if self.capacity.num_streams:
            self._copy_stream(holder, cells, count, len(own))
            return
        for cell in cells:
            cell.holders.add(holder)

    def _copy_stream(self, holder: int, cells: list[Cell], count: int, whole: int) -> None:
        if holder not in self.stream_of:
            raise RuleBroken(f"holder {holder} has no stream")
        if count != whole:
            raise RuleBroken(f"a stream of {whole} cells is copied, not {count}")
        self.cells += [replace(cell, holders={holder}) for cell in cells]

    def _discard(self, slot: int, start: int, count: int) -> None:
        if not self.capacity.can_shift:
            raise RuleBroken("this model cannot shift")
        own = self.held(slot)
        if len(own) < start + count:
            raise RuleBroken(f"{len(own)} cells cannot lose {count} from {start} on")
        for cell in own[start : start + count]:
            cell.holders.remove(slot)
        for cell in own[start + count :]:
            if cell.holders != {slot}:
                raise RuleBroken(f"a cell moves under {cell.holders - {slot}}")
            cell.position -= count
        self.cells = [cell for cell in self.cells if cell.holders]

    def lose_parked(self) -> None:
        """Nothing that is parked now can be had back."""
        self.blocks = dict.fromkeys(self.blocks, b"")

    def _state(self, holder: int, start: int, count: int) -> bytes:
        if self._not_loaded:  # the step comes to nothing
            return b""
        tokens = self.tokens(holder)[start : start + count]
        if len(tokens) != count:
            raise RuleBroken(f"holder {holder} has no {count} cells from {start} on")
        if start and not self.capacity.can_share and not self.capacity.state_bytes:
            raise RuleBroken("states of this model are whole")
        return state_of(tokens)

    def _append(self, holder: int, tokens: Sequence[int], start: int = 0) -> None:
        self.cells += [Cell(token, start + i, {holder}) for i, token in enumerate(tokens)]

    def _check_room(self, count: int) -> None:
        if len(self.cells) + count > self.capacity.num_cells:
            raise RuleBroken(f"no room for {count} tokens more")

    def _write(self, run: Run, count: int) -> None:
        if run.media is not None:
            self._write_media(run, run.media, count)
            return
        for index, token in enumerate(marked(run.tokens[:count], self._adapter)):
            self.cells.append(Cell(token, run.start + index, {run.slot}))

    def _write_media(self, run: Run, part: MediaPart, count: int) -> None:
        marks = media_marks(part.media, part.first, count, self._adapter)
        for index, mark in enumerate(marks):
            place = (part.media.digest, part.first + index)
            self.cells.append(Cell(mark, run.start + index, {run.slot}, place))

    def _spoil(self, step: Step, outcome: Failed | Aborted | NoRoom) -> None:
        if isinstance(outcome, NoRoom):  # nothing is written then
            return
        for run in step.runs:
            self._write(run, self._written.randint(0, run.num_positions))

    # ---- rules

    def _check(self, step: Step) -> None:
        size = _size(step)
        if size > self.capacity.batch_size:
            raise RuleBroken(f"{size} tokens in a batch of {self.capacity.batch_size}")
        if size != step.size:
            raise RuleBroken(f"{size} tokens, announced otherwise: {step}")
        if len({run.media is None for run in step.runs}) > 1:
            raise RuleBroken(f"tokens and media in one batch: {step}")
        if step.is_whole and len(step.runs) > 1:
            raise RuleBroken(f"more beside what is looked at as a whole: {step}")
        slots = [run.slot for run in step.runs]
        if len(set(slots)) != len(slots):
            raise RuleBroken(f"two runs in one slot: {slots}")
        if len(self.cells) + size > self.capacity.num_cells:
            raise RuleBroken(f"{size} tokens beside {len(self.cells)} cells do not fit")
        num_rows = sum(1 + run.num_drafted for run in step.runs if run.samples)
        if num_rows > self.num_slots * (1 + self.capacity.max_draft):
            raise RuleBroken(f"{num_rows} rows of logits")
        num_scored = sum(len(run.scored) for run in step.runs)
        if num_scored > self.capacity.most_scored:
            raise RuleBroken(f"{num_scored} further rows of logits")
        for run in step.runs:
            self._check_run(run)

    def _check_run(self, run: Run) -> None:
        if not 0 <= run.slot < self.num_slots:
            raise RuleBroken(f"no slot {run.slot}")
        if self.capacity.num_streams and run.slot not in self.stream_of:
            raise RuleBroken(f"slot {run.slot} has no stream")
        if not run.num_positions:
            raise RuleBroken(f"an empty run: {run}")
        if run.media is not None:
            self._check_media(run, run.media)
        positions = [cell.position for cell in self.held(run.slot)]
        if positions != list(range(run.start)):
            raise RuleBroken(f"position {run.start} after {positions}")
        if run.num_drafted and not (run.samples and 0 < run.num_drafted < len(run.tokens)):
            raise RuleBroken(f"a draft of nothing: {run}")
        if run.first_scored + len(run.scored) > len(run.tokens):
            raise RuleBroken(f"a score of nothing: {run}")
        if run.start + run.num_positions > self.context_size:
            raise RuleBroken(f"beyond the ceiling: {run}")
        if not all(0 <= token < VOCAB_SIZE for token in run.tokens):
            raise RuleBroken(f"a token outside the vocabulary: {run}")

    def _check_media(self, run: Run, part: MediaPart) -> None:
        if run.tokens or run.samples or run.num_drafted or run.scored:
            raise RuleBroken(f"media and tokens in one run: {run}")
        if part.first + part.count > part.media.num_positions:
            raise RuleBroken(f"beyond the end of its media: {run}")
        if part.media.is_whole and (part.first or part.count < part.media.num_positions):
            raise RuleBroken(f"a part of what is looked at as a whole: {run}")
        own = self.held(run.slot)
        if part.first and (not own or own[-1].part != (part.media.digest, part.first - 1)):
            raise RuleBroken(f"media that go on without their beginning: {run}")

    def _check_holder(self, holder: int) -> None:
        if not 0 <= holder < self.capacity.num_holders:
            raise RuleBroken(f"no holder {holder}")


def _size(step: Step) -> int:
    return sum(run.num_positions for run in step.runs)
