"""One step of the engine: what is computed together, and its possible outcomes.

Cells belong to holders: a slot, or (above the number of slots) a cached prefix. In the unified
layout all holders have cells of one cache, and may share them. In the layout `streams` each holder
has a stream of its own. Host memory has blocks, each with a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .prompt import MediaPart
from .prompt_store.stored_prompt import State
from .sampling.log_probs import LogProbs
from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class Clear:
    """Free the cells of `holder` from position `start` on."""

    holder: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """Give the first `length` cells of `source` also to `holder`, which has no cells.

    `is_rolled_back`: `source` has dropped its last cells since it was last computed. A copy that
    `is_bare` omits the uncuttable state, which follows after further cells (`RestoreState`). A
    state that cannot be shared is copied, which takes as long as `count` cells.
    """

    source: int
    holder: int
    length: int
    is_rolled_back: bool = False
    is_bare: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Assign `stream` to `holder`, either empty or with the cells that `source` has in it.

    Only in the layout `streams`. The previous holder of `stream` has no stream after that.
    """

    holder: int
    stream: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove `count` cells of `slot` from position `start` on, and move later cells up."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Offload:
    """Copy `count` cells of `holder` from `start` on to host memory as `block`; the cells stay.

    An uncuttable state is not part of `block`.
    """

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class OffloadState:
    """Copy the uncuttable state of `holder` to host memory as `block`.

    `holder` is at position `length` and keeps its cells. The copy takes as long as `count` cells.
    """

    holder: int
    length: int
    block: int
    count: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Copy `count` cells from `block` to `holder`, after its first `start` cells."""

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Give `holder`, which has `length` cells, the state in `block`."""

    holder: int
    length: int
    block: int
    count: int


@dataclass(frozen=True, slots=True)
class Put:
    """Put `state`, which comes from storage, into host memory as `block`. No cell moves."""

    block: int
    state: State


@dataclass(frozen=True, slots=True)
class ReadOut:
    """Export `block`, which is in host memory. No cell moves.

    With a `count` only a part is exported: `count` cells after its first `start`.
    """

    block: int
    start: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """Free `blocks` in host memory."""

    blocks: tuple[int, ...]


Edit = (
    Clear
    | Copy
    | Place
    | Discard
    | Offload
    | OffloadState
    | Restore
    | RestoreState
    | Put
    | ReadOut
    | Free
)

Move = Offload | OffloadState | Restore | RestoreState
"""Edits that copy cells' contents, which takes time for each cell."""


@dataclass(slots=True)
class Run:
    """Consecutive positions of one sequence: `tokens[0]` is at position `start` of its slot.

    A run never changes. The class is not frozen, since there is a run for each token, and a frozen
    one takes three times as long to make.

    A part of `media` is a run of its own, without tokens; no token is sampled after it. `samples`
    requests the logits of the last position, from which the sequence's next token is chosen. The
    last `num_drafted` tokens are drafted, and the logits before each are requested too. `scored`
    are tokens of the prompt that get log-probabilities. Each follows a token of the run, the first
    one `tokens[first_scored]`, whose logits give its log-probability.
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
        """The number of positions that the run computes."""
        return len(self.tokens) if self.media is None else self.media.count

    @property
    def draft(self) -> tuple[int, ...]:
        """The drafted tokens."""
        return self.tokens[len(self.tokens) - self.num_drafted :]


@dataclass(frozen=True, slots=True)
class Step:
    """A step: carry out `edits` in order, then decode `runs` as one batch.

    Generating sequences come before prompts, and both are in the order of their places in the
    cache. `num_generating`, `num_prompt_tokens` and `num_drafted` add up to the size of the batch.
    A step without runs has only edits. All runs are computed under the same `adapter`
    (`Prompt.adapter`).
    """

    edits: tuple[Edit, ...]
    runs: tuple[Run, ...]
    num_generating: int
    num_prompt_tokens: int
    num_drafted: int = 0
    adapter: str | None = None

    @property
    def size(self) -> int:
        """The tokens of the batch."""
        return self.num_generating + self.num_prompt_tokens + self.num_drafted

    @property
    def is_whole(self) -> bool:
        """Return whether the step reads a picture that is computed as a whole."""
        media = self.runs[0].media if self.runs else None
        return media is not None and media.media.is_whole

    @property
    def num_moved(self) -> int:
        """The number of cells whose contents the edits copy."""
        return sum(edit.count for edit in self.edits if isinstance(edit, Move | Copy))

    @property
    def depth(self) -> int:
        """The position at which the longest part of a prompt begins; 0 if there is none."""
        chunks = self.runs[self.num_generating :]
        return max(chunks, key=lambda run: run.num_positions).start if chunks else 0


Explained = Mapping[SequenceId, tuple[LogProbs, ...]]
"""Log-probabilities of sequences' tokens."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The step was computed: at least one token for each run that samples, in order.

    If a token equals the drafted token, the next token follows, and so on. So a run gives one
    token, and one more for each drafted token that is right. `log_probs` has a sequence's tokens
    in order, if requested, and `prompt_log_probs` the tokens that its run `scored`. For `broken`
    sequences the choice failed: their runs have no tokens here.

    `saved` are the states of the `ReadOut` edits, in order; a state is empty if it could not be
    read. Copying cells' contents took `move_seconds`.
    """

    tokens: tuple[int, ...]
    log_probs: Explained = field(default_factory=dict, hash=False)
    prompt_log_probs: Explained = field(default_factory=dict, hash=False)
    broken: frozenset[SequenceId] = frozenset()
    saved: tuple[State, ...] = ()
    move_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The cells did not suffice. Nothing was computed, but the edits were carried out."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The step was interrupted; some of its cells may have been written."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The step could not be computed; some of its cells may have been written."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """The states of `holders` could not be loaded or restored, so nothing was computed.

    The cells of these holders, and of holders that were to share these cells in this step, are
    invalid.
    """

    holders: tuple[int, ...]


Outcome = Decoded | NoRoom | Aborted | Failed | NotLoaded
"""The outcome of a step; all other edits were carried out in every case."""
