"""One step of the engine: what is computed together, and what can come of it.

Cells belong to holders: a slot, or (from the number of slots on) a kept prefix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .prompt_store.stored_prompt import StoredPrompt
from .sampling.log_probs import LogProbs
from .sequence import SequenceId


@dataclass(frozen=True, slots=True)
class Clear:
    """`holder` gives up its cells from position `start` on; without `start`, what it parked too."""

    holder: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """The first `length` cells of `source` become those of `holder` too, which has none."""

    source: int
    holder: int
    length: int


@dataclass(frozen=True, slots=True)
class Discard:
    """`slot` gives up `count` cells from position `start` on, and those after them move up."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Load:
    """`slot`, which has no cells, gets the first `length` of those that `stored` describes."""

    slot: int
    stored: StoredPrompt
    length: int


@dataclass(frozen=True, slots=True)
class Park:
    """What the cells of `holder` contain goes to host memory, and `holder` gives them up."""

    holder: int


@dataclass(frozen=True, slots=True)
class Restore:
    """`slot`, which has no cells, gets the first `length` of those parked as `source`.

    What is parked stays there until `source` is cleared.
    """

    source: int
    slot: int
    length: int


Edit = Clear | Copy | Discard | Load | Park | Restore


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of one sequence: `tokens[0]` lies at position `start` of its slot.

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

    @property
    def draft(self) -> tuple[int, ...]:
        """The tokens that are a guess."""
        return self.tokens[len(self.tokens) - self.num_drafted :]


@dataclass(frozen=True, slots=True)
class Step:
    """First `edits`, in their order; then `runs` are decoded as one batch.

    Generating sequences come before prompts. `num_generating`, `num_prompt_tokens` and
    `num_drafted` say what the batch is made of; they add up to its size. A step without runs is
    only its edits.
    """

    edits: tuple[Edit, ...]
    runs: tuple[Run, ...]
    num_generating: int
    num_prompt_tokens: int
    num_drafted: int = 0

    @property
    def size(self) -> int:
        """Tokens of the batch."""
        return self.num_generating + self.num_prompt_tokens + self.num_drafted

    @property
    def depth(self) -> int:
        """From which position on the longest part of a prompt is read; 0 where none is."""
        chunks = self.runs[self.num_generating :]
        return max(chunks, key=lambda run: len(run.tokens)).start if chunks else 0


@dataclass(frozen=True, slots=True)
class Save:
    """What `slot` still holds, up to the next step, is to be handed out: the state of `tokens`."""

    id: SequenceId
    slot: int
    tokens: tuple[int, ...]


Explained = Mapping[SequenceId, tuple[LogProbs, ...]]
"""Log-probabilities of sequences' tokens."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The step was computed: one token for each run that samples, in the order of the runs.

    Where that is what the run drafted, the token after it follows, and so on: at least one for each
    run, and one more for each drafted token that is right. `log_probs` are of a sequence's tokens,
    in their order, where they are asked for, and `prompt_log_probs` of what its run `scored`. For
    `broken` sequences nothing could be chosen or told: their runs have no tokens here.
    """

    tokens: tuple[int, ...]
    log_probs: Explained = field(default_factory=dict, hash=False)
    prompt_log_probs: Explained = field(default_factory=dict, hash=False)
    broken: frozenset[SequenceId] = frozenset()


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
    """Nothing could be loaded or restored into `slots`, which are empty; nothing was computed."""

    slots: tuple[int, ...]


Outcome = Decoded | NoRoom | Aborted | Failed | NotLoaded
"""Whatever it is, the step's (other) edits were carried out."""
