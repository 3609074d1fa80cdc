"""Queries: embeddings, rankings, tokens. They take no slot and have one result.

One call may go to several agents in parts. Each part is one `Query` and is answered by the `Result`
of its kind, or by `Declined`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .errors import WireError
from .inference import MAX_TOKEN_IDS, GenerateRequest, NumTokens, TokenId
from .strict import STRICT, ListOf

Pooling = Literal["mean", "cls", "last", "rank"]
Norm = Literal["none", "l2", "rms"]

MAX_INPUTS = 2048
"""Most texts of one call to be embedded, and most documents of one to be ranked."""

MAX_TEXT = 2**20
"""Most characters of a text to be tokenised, so that its tokens fit into a frame."""
MAX_DETOKENIZED = 2**16
"""Most tokens to be turned into text, likewise."""

MAX_TOKENIZED = 2**23
"""Most tokens of a text: a character has four bytes at most, and a template may add some."""
MAX_TEXT_BACK = 2**24
"""Most characters that tokens are turned into."""
MAX_VECTOR = 2**23
"""Most characters of a vector: of `Dimensions`, in base64."""
_FLOATS = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""Base64."""
MOST_SCORE = 1e9

TokenIds = Annotated[ListOf[TokenId], Field(min_length=1, max_length=MAX_TOKEN_IDS)]
Dimensions = Annotated[int, Field(ge=1, lt=2**20)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
PlainText = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Detokenizable = Annotated[ListOf[TokenId], Field(max_length=MAX_DETOKENIZED)]
EmbedInput = NonEmpty | TokenIds
"""One input, of which one vector is made: a text or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Inputs of more than `most` tokens, or than the model takes, are cut to as many.

    The tokens that the model puts around every text count and stay.
    """

    __pydantic_config__ = STRICT
    keeps: Literal["first", "last"]
    most: Annotated[int, Field(ge=1, lt=2**31)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """Turn each input into a vector. Without a `pooling` the model's own is used.

    Without a `truncation` an input that is too long has no vector, but an error.
    With `dimensions` only so many are kept, the first ones, before they are normalised.
    """

    __pydantic_config__ = STRICT
    type: Literal["embed"] = "embed"
    inputs: Annotated[ListOf[EmbedInput], Field(min_length=1, max_length=MAX_INPUTS)]
    pooling: Pooling | None = None
    normalize: Norm = "l2"
    dimensions: Dimensions | None = None
    truncation: Truncation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Score how well each document answers the query.

    With `max_document_tokens` only so many of a document's first tokens are read.
    """

    __pydantic_config__ = STRICT
    type: Literal["rank"] = "rank"
    query: NonEmpty
    documents: Annotated[ListOf[NonEmpty], Field(min_length=1, max_length=MAX_INPUTS)]
    max_document_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenize:
    """Turn a text into tokens. `add_special`: with what the model puts around every text.

    `parse_special`: the text of a control token becomes that token.
    """

    __pydantic_config__ = STRICT
    type: Literal["tokenize"] = "tokenize"
    text: PlainText
    add_special: bool = False
    parse_special: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detokenize:
    """Turn tokens into text."""

    __pydantic_config__ = STRICT
    type: Literal["detokenize"] = "detokenize"
    tokens: Detokenizable


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTokens:
    """Count the tokens of this request's prompt, even if it does not fit."""

    __pydantic_config__ = STRICT
    type: Literal["count_tokens"] = "count_tokens"
    request: GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTokenizer:
    """Tell which texts begin and end this model's prompts, and its chat template."""

    __pydantic_config__ = STRICT
    type: Literal["describe_tokenizer"] = "describe_tokenizer"


TextQuery = Tokenize | Detokenize | CountTokens | DescribeTokenizer
"""Queries that need only vocabulary and template."""

Query = Annotated[Embed | Rank | TextQuery, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One input's `num_tokens`, and its `vector` (32-bit floats, little-endian, in base64).

    `num_cut` tokens of the input were cut off, and are not among `num_tokens`.
    """

    __pydantic_config__ = STRICT
    vector: Annotated[str, Field(max_length=MAX_VECTOR, pattern=_FLOATS)] = ""
    num_tokens: NumTokens = 0
    num_cut: NumTokens = 0
    error: WireError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A vector or an error for each input, in their order."""

    __pydantic_config__ = STRICT
    type: Literal["embedded"] = "embedded"
    vectors: Annotated[ListOf[Vector], Field(max_length=MAX_INPUTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One document's score and `num_tokens`, those of the query with it."""

    __pydantic_config__ = STRICT
    score: Annotated[float, Field(ge=-MOST_SCORE, le=MOST_SCORE)] = 0.0
    num_tokens: NumTokens = 0
    error: WireError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A score or an error for each document, in their order."""

    __pydantic_config__ = STRICT
    type: Literal["ranked"] = "ranked"
    scores: Annotated[ListOf[Score], Field(max_length=MAX_INPUTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """The tokens of the text."""

    __pydantic_config__ = STRICT
    type: Literal["tokenized"] = "tokenized"
    tokens: Annotated[ListOf[TokenId], Field(max_length=MAX_TOKENIZED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detokenized:
    """The text; where the tokens' bytes are no whole UTF-8, `bytes_base64` has them, too."""

    __pydantic_config__ = STRICT
    type: Literal["detokenized"] = "detokenized"
    text: Annotated[str, Field(max_length=MAX_TEXT_BACK)]
    bytes_base64: Annotated[str, Field(max_length=2 * MAX_TEXT_BACK)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many tokens the prompt would have."""

    __pydantic_config__ = STRICT
    type: Literal["counted"] = "counted"
    num_tokens: NumTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerDescription:
    """`None` for what the model does not have. A template longer than `MAX_TEXT` is not sent."""

    __pydantic_config__ = STRICT
    type: Literal["tokenizer_description"] = "tokenizer_description"
    bos_text: PlainText | None = None
    eos_text: PlainText | None = None
    chat_template: PlainText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The query failed."""

    __pydantic_config__ = STRICT
    type: Literal["declined"] = "declined"
    error: WireError


Result = Annotated[
    Embedded | Ranked | Tokenized | Detokenized | Counted | TokenizerDescription | Declined,
    Field(discriminator="type"),
]
