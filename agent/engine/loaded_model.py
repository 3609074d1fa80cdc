"""The description of a loaded model for the rest of the agent: facts, vocabulary, chat template."""

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
    """Text to token ids and back. Thread-safe.

    `size` is the number of token ids. `end_tokens` end a generation; `suppressed_tokens` must never
    be generated, according to the model file. `bos_text` and `eos_text` are their texts in chat
    templates, empty if the model has none. `fill_in` is set for models trained to fill in the
    middle. `control_texts` are the texts that `parse_special` converts to control tokens.
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
        """Return the token ids of `text`.

        `add_special` adds the tokens that the model expects around a prompt (BOS, EOS). With
        `parse_special` the text of a control token becomes that token instead of plain text.
        Raises `InvalidRequest` if tokenizing would take too much stack or time, and `Withdrawn` if
        the request has ended.
        """

    def piece(self, token: int) -> bytes:
        """Return the bytes of `token`; empty for control tokens."""

    def name(self, token: int) -> bytes:
        """Return the bytes of `token`, or the text of a control token."""


@dataclass(frozen=True, slots=True)
class GrammarTokens:
    """The bytes of each token in llguidance's form, and the tokens that end an answer.

    `tokenize` returns the tokens of a text in the middle of an answer.
    """

    pieces: Sequence[bytes]
    ends: Sequence[int]
    tokenize: Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model. `chat_template` is its Jinja source in the model file, or `None`.

    `tool_template` is a separate template for requests with tools, if any. `grammar_tokens` is the
    vocabulary for grammars; without it answers cannot be constrained. `embedding` makes embeddings
    with the same weights. `media` reads media, if there is a projector. A draft model has a KV
    cache of `num_draft_cells`.

    If prefixes can be exported, a token's state has `cell_bytes`, and a checkpoint has
    `state_bytes` in addition. A model with `has_checkpoints` shares prefixes only at checkpoints,
    and needs to know where messages begin. `arithmetic` identifies the arithmetic of a
    deterministic engine: engines with equal values give equal answers.

    `options` are the options with which the model was loaded, if some were chosen; `fit` describes
    the choice. `held` maps each device and the host to the bytes that the model uses there, if
    known.
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
