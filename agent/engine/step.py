"""One step of the engine: what is computed together, and its possible outcomes.

Cells belong to holders: a slot, or (from the number of slots on) a cached prefix. In the unified
layout all holders have cells of one cache, and may share them; in the layout `streams` each has a
stream of its own. Host memory has blocks, each under a number of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .prompt import MediaPart
from .prompt_store.stored_prompt import State
from .sampling.log_probs import LogProbs
from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class Clear:
    """`holder` gives up its cells from position `start` on."""

    holder: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """The first `length` cells of `source` become those of `holder` too, which has none.

    `is_rolled_back`: `source` gave up its last cells since it was computed last. A copy that
    `is_bare` leaves out the state of layers that cannot be cut: it follows, after further cells
    (`RestoreState`). What cannot be shared is copied, which takes as long as `count` cells.
    """

    source: int
    holder: int
    length: int
    is_rolled_back: bool = False
    is_bare: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """`holder` gets `stream`, with all cells that `source` has in it; without one, it is empty.

    Only in the layout `streams`. The holder that had `stream` before has none now.
    """

    holder: int
    stream: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Discard:
    """`slot` gives up `count` cells from position `start` on, and those after them move up."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Offload:
    """`count` cells of `holder` from `start` on are copied to host memory as `block`; they stay.

    If the model has a state that cannot be cut, `block` has nothing of it.
    """

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class OffloadState:
    """The state that cannot be cut is copied to host memory as `block`.

    `holder` stands at `length` and stays. It takes as long as `count` cells.
    """

    holder: int
    length: int
    block: int
    count: int


@dataclass(frozen=True, slots=True)
class Restore:
    """`block` is copied to `holder`: `count` cells after the `start` that it has."""

    holder: int
    start: int
    count: int
    block: int


@dataclass(frozen=True, slots=True)
class RestoreState:
    """`holder`, which has `length` cells, gets the state `block`: it stands there now."""

    holder: int
    length: int
    block: int
    count: int


@dataclass(frozen=True, slots=True)
class Put:
    """`state` is in host memory as `block`, as it was stored. No cell moves."""

    block: int
    state: State


@dataclass(frozen=True, slots=True)
class ReadOut:
    """`block`, which is in host memory, is handed out. No cell moves.

    With a `count` that is a part of it: so many cells after its first `start`.
    """

    block: int
    start: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """`blocks` are not needed in host memory any more."""

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

    `saved` are the states of the `ReadOut` edits, in their order, empty where one could not be
    read. Copying what cells contain took `move_seconds`.
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
