"""One step of the engine: what is computed together, and its possible outcomes.

Cells belong to holders: a slot, or (from the number of slots on) a cached prefix. In the unified
layout all holders have cells of one cache, and may share them; in the layout `streams` each has a
stream of its own, or is parked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .prompt import MediaPart
from .prompt_store.stored_prompt import State, StoredPrompt
from .sampling.log_probs import LogProbs
from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class Clear:
    """`holder` gives up its cells from position `start` on, and all that it parked."""

    holder: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """The first `length` cells of `source` become those of `holder` too, which has none.

    `is_rolled_back`: `source` gave up its last cells since it was computed last. A window or a
    state that cannot be shared is copied, which takes as long as `count` cells.
    """

    source: int
    holder: int
    length: int
    is_rolled_back: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class Discard:
    """`slot` gives up `count` cells from position `start` on, and those after them move up."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Load:
    """`holder`, which has no cells, gets those that `stored` describes, all at once.

    It is for models whose states cannot be had in pieces.
    """

    holder: int
    stored: StoredPrompt

    @property
    def count(self) -> int:
        """How many cells move."""
        return len(self.stored.prompt)


@dataclass(frozen=True, slots=True)
class Adopt:
    """`holder` has the pieces of `stored` parked, after the cells that it has. No cell moves.

    It has those before the first piece, if there are any: `stored.start` many.
    """

    holder: int
    stored: StoredPrompt


@dataclass(frozen=True, slots=True)
class Park:
    """A piece goes to host memory: the last `count` cells of `holder`, from `start` on.

    `holder` gives them up. What it parked before comes after them.
    """

    holder: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Restore:
    """The piece that `holder` parked last comes back, `count` cells after those it has."""

    holder: int
    count: int


@dataclass(frozen=True, slots=True)
class ParkBlock:
    """`count` cells of `holder` from `start` on are copied to host memory as `block`; they stay.

    Only what layers have that look back to the start (`kv_cache.parked_checkpoints`).
    """

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class ParkState:
    """The other layers' state is copied to host memory, for `checkpoint`.

    `holder` stands at `length` and stays. It takes as long as `count` cells.
    """

    holder: int
    length: int
    checkpoint: int
    count: int


@dataclass(frozen=True, slots=True)
class ShareAttention:
    """`holder`, which has no cells, gets the first `length` of `source`, but not the state there.

    Its state follows (`RestoreState`), after further cells.
    """

    source: int
    holder: int
    length: int


@dataclass(frozen=True, slots=True)
class RestoreBlock:
    """`block` comes back, and stays parked: `count` cells after the `start` that `holder` has."""

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class RestoreState:
    """The state of `checkpoint` comes back, and stays parked: `holder` stands at `length` now."""

    holder: int
    length: int
    checkpoint: int
    count: int


@dataclass(frozen=True, slots=True)
class AdoptBlock:
    """`block` is parked, as it was stored. No cell moves."""

    block: int
    state: State


@dataclass(frozen=True, slots=True)
class AdoptState:
    """The state of `checkpoint` is parked, as it was stored. No cell moves."""

    checkpoint: int
    state: State


@dataclass(frozen=True, slots=True)
class Forget:
    """`blocks`, and the state of `checkpoint`, are not needed in host memory any more."""

    blocks: tuple[int, ...]
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class SaveState:
    """The state at `length` tokens of the sequence in `slot` is handed out; it stays.

    It is that of a parked `checkpoint`, or else `holder` stands there.
    """

    id: SequenceId
    slot: int
    holder: int
    length: int
    count: int
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """The state of `count` cells of `slot` from `start` on is handed out; they stay.

    It `is_tail` where it belongs to a checkpoint that ends there, and not to all.
    """

    id: SequenceId
    slot: int
    start: int
    count: int
    is_tail: bool = False


@dataclass(frozen=True, slots=True)
class Export:
    """The state of `count` cells of `holder` from `start` on is handed out; they stay.

    Either all of them are parked, as a part of one piece, or none is.
    """

    holder: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class ExportBlock:
    """The state of `block`, which is parked with `num_tokens`, is handed out. No cell moves."""

    block: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ExportState:
    """The state of `checkpoint`, which is parked, is handed out. No cell moves."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Place:
    """`holder` gets the cells of `stream`, all of which are free.

    The holder that had `stream` before has none now.
    """

    holder: int
    stream: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """The stream of `source`, with all that is in it, is that of `holder` now."""

    source: int
    holder: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """`holder`, whose stream is empty, gets copies of the first `length` cells of `source`.

    Those may be parked, and stay so. `count` is what is copied on the way.
    """

    source: int
    holder: int
    length: int
    count: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Two streams change their contents and their holders; `count` cells have to be copied."""

    first: int
    second: int
    count: int


StreamEdit = Place | HandOver | Duplicate | Swap
"""Edits of the layout `streams` alone."""

CheckpointMove = ParkBlock | ParkState | RestoreBlock | RestoreState | SaveState

CheckpointExport = ExportBlock | ExportState

CheckpointEdit = (
    AdoptBlock | AdoptState | Forget | ShareAttention | CheckpointExport | CheckpointMove
)
"""Edits where sequences are shared at checkpoints alone."""

Edit = (
    Adopt
    | Clear
    | Copy
    | Discard
    | Export
    | Load
    | Park
    | Restore
    | Save
    | StreamEdit
    | CheckpointEdit
)

Move = Export | Load | Park | Restore | Save | Duplicate | Swap | CheckpointMove
"""Edits that copy what cells contain, which takes time for each cell."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive positions of one sequence: `tokens[0]` lies at position `start` of its slot.

    A part of `media` is a run of its own, without tokens; nothing is sampled after it.

    `samples` asks for the logits of the last one, from which the sequence's next token is chosen.
    The last `num_drafted` tokens are a guess of what will be chosen, and the logits before each
    are asked for too. `scored` are tokens of the prompt: each follows a token of the run, the first
    one `tokens[first_scored]`, whose logits say how likely it was.
    """

    id: SequenceId
    slot: int
    start: int
    tokens: tuple[int, ...]
    samples: bool
    num_drafted: int = 0
    scored: tuple[int, ...] = ()
    first_scored: int = 0
    media: MediaPart | None = None

    @property
    def num_positions(self) -> int:
        """How many it computes."""
        return len(self.tokens) if self.media is None else self.media.count

    @property
    def draft(self) -> tuple[int, ...]:
        """The tokens that are a guess."""
        return self.tokens[len(self.tokens) - self.num_drafted :]


@dataclass(frozen=True, slots=True)
class Step:
    """First `edits`, in their order; then `runs` are decoded as one batch.

    Generating sequences come before prompts, and each of
    the two in the order of their places in the cache. `num_generating`, `num_prompt_tokens` and
    `num_drafted` say what the batch is made of; they add up to its size. A step without runs is
    only its edits. All is computed under the same `adapter` (`Prompt.adapter`).
    """

    edits: tuple[Edit, ...]
    runs: tuple[Run, ...]
    num_generating: int
    num_prompt_tokens: int
    num_drafted: int = 0
    adapter: str | None = None

    @property
    def size(self) -> int:
        """Tokens of the batch."""
        return self.num_generating + self.num_prompt_tokens + self.num_drafted

    @property
    def is_whole(self) -> bool:
        """Whether it reads a picture that is looked at as a whole."""
        media = self.runs[0].media if self.runs else None
        return media is not None and media.media.is_whole

    @property
    def num_moved(self) -> int:
        """Cells whose contents the edits copy."""
        return sum(edit.count for edit in self.edits if isinstance(edit, Move | Copy))

    @property
    def depth(self) -> int:
        """The position at which the longest part of a prompt begins; 0 where there is none."""
        chunks = self.runs[self.num_generating :]
        return max(chunks, key=lambda run: run.num_positions).start if chunks else 0


Explained = Mapping[SequenceId, tuple[LogProbs, ...]]
"""Log-probabilities of sequences' tokens."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The step was computed: one token for each run that samples, in the order of the runs.

    Where that is what the run drafted, the token after it follows, and so on: at least one for each
    run, and one more for each drafted token that is right. `log_probs` are of a sequence's tokens,
    in their order, where they are asked for, and `prompt_log_probs` of what its run `scored`. For
    `broken` sequences the choice failed: their runs have no tokens here.

    `saved` are the states of the `Save`, `SaveState`, `Export`, `ExportBlock` and `ExportState`
    edits, in their order, empty where one could not be read. Copying what cells contain took
    `move_seconds`.
    """

    tokens: tuple[int, ...]
    log_probs: Explained = field(default_factory=dict, hash=False)
    prompt_log_probs: Explained = field(default_factory=dict, hash=False)
    broken: frozenset[SequenceId] = frozenset()
    saved: tuple[State, ...] = ()
    move_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The cells did not suffice; nothing was computed, the cache is as it was after the edits."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The step was interrupted; some of its cells may have been written."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The step could not be computed; some of its cells may have been written."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """Nothing could be loaded or restored for `holders`; nothing was computed.

    The cells of those holders, and of any that were to share them in this step, are invalid.
    """

    holders: tuple[int, ...]


Outcome = Decoded | NoRoom | Aborted | Failed | NotLoaded
"""In every case the step's other edits were carried out."""
