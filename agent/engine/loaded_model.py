"""What the rest of the agent knows of a model: its facts, its vocabulary, its chat template."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...shared.reports.model_info import ModelInfo
from .embedding.embedding import EmbeddingModel
from .load_options import LoadOptions
from .media.reader import MediaReader


@dataclass(frozen=True, slots=True)
class FillIn:
    """Fill-in-the-middle tokens: prefix, suffix, and the middle that the model writes."""

    before: int
    after: int
    between: int


class Vocab(Protocol):
    """Text to token ids and back. Safe from any thread, the worker's or another.

    `size` counts token ids. `end_tokens` end a generation, and `suppressed_tokens` must never be
    generated, as the model file says. `bos_text` and `eos_text` are what chat templates write for
    them, empty where the model has none. `fill_in` is for models that learnt to fill in the middle.
    `control_texts` are what `parse_special` makes control tokens of.
    """

    @property
    def size(self) -> int: ...

    @property
    def end_tokens(self) -> frozenset[int]: ...

    @property
    def suppressed_tokens(self) -> frozenset[int]: ...

    @property
    def bos_text(self) -> str: ...

    @property
    def eos_text(self) -> str: ...

    @property
    def fill_in(self) -> FillIn | None: ...

    @property
    def control_texts(self) -> tuple[str, ...]: ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Token ids of `text`.

        `add_special` adds what the model expects around a prompt (BOS, EOS). With `parse_special`
        the text of a control token becomes that token instead of plain text. Raises
        `InvalidRequest` if that would take too much stack or time, and `Withdrawn`.
        """

    def piece(self, token: int) -> bytes:
        """The bytes that `token` stands for; control tokens stand for none."""

    def name(self, token: int) -> bytes:
        """Like `piece`, but a control token gives the text that stands for it."""


@dataclass(frozen=True, slots=True)
class GrammarTokens:
    """The bytes of each token as llguidance takes them, and the tokens that end an answer.

    `tokenize` says the tokens of a text in the middle of an answer.
    """

    pieces: Sequence[bytes]
    ends: Sequence[int]
    tokenize: Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`chat_template` is Jinja source as it stands in the model file; `None` when it has none.

    `tool_template` is the one for requests with tools, where it has one of its own for them.

    `grammar_tokens` is the vocabulary for grammars; without it nothing is constrained.
    `embedding` makes vectors with the same weights. `media` reads pictures, where there is a
    projector for them. A draft model beside it has a KV cache of `num_draft_cells`. The state of a
    token has `cell_bytes`, where prefixes can be handed out, and that of a checkpoint `state_bytes`
    besides. `arithmetic` is the sign of how a
    deterministic engine computes: those with the same one give the same answers. One that
    `has_checkpoints` shares prefixes there alone: it wants to know where messages begin.
    `options` are those that it is loaded with, where some were chosen; `fit` says that in words.
    `held` are the bytes that it takes of each device, and of the host's memory, where that is
    known, by name.
    """

    info: ModelInfo
    vocab: Vocab
    chat_template: str | None
    grammar_tokens: GrammarTokens | None = None
    tool_template: str | None = None
    embedding: EmbeddingModel | None = None
    media: MediaReader | None = None
    num_draft_cells: int | None = None
    cell_bytes: int | None = None
    state_bytes: int = 0
    arithmetic: str | None = None
    has_checkpoints: bool = False
    options: LoadOptions | None = None
    fit: str | None = None
    held: Mapping[str, int] = field(default_factory=dict)
