"""Queries: embeddings, rankings, tokens. They take no slot and have one result.

One call may go to several agents in parts. Each part is one `Query`; the answer is the `Result` of
its kind, or `Declined`.
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
"""Maximum texts to embed in one call, and maximum documents to rank."""

MAX_TEXT = 2**20
"""Maximum characters of a text to tokenize, so that its tokens fit into a frame."""
MAX_DETOKENIZED = 2**16
"""Maximum tokens to turn into text, so that the text fits into a frame."""

MAX_TOKENIZED = 2**23
"""Maximum tokens of a text: a character has at most four bytes, and a template adds some."""
MAX_TEXT_BACK = 2**24
"""Maximum characters of the text of tokens."""
MAX_VECTOR = 2**23
"""Maximum characters of a vector of `Dimensions` in base64."""
_FLOATS = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""Base64."""
MOST_SCORE = 1e9

TokenIds = Annotated[ListOf[TokenId], Field(min_length=1, max_length=MAX_TOKEN_IDS)]
Dimensions = Annotated[int, Field(ge=1, lt=2**20)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
PlainText = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Detokenizable = Annotated[ListOf[TokenId], Field(max_length=MAX_DETOKENIZED)]
EmbedInput = NonEmpty | TokenIds
"""An input of an embedding: a text or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Cut inputs to `most` tokens, or to the model's limit.

    The tokens that the model puts around every text count, but are never cut.
    """

    __pydantic_config__ = STRICT
    keeps: Literal["first", "last"]
    most: Annotated[int, Field(ge=1, lt=2**31)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """Turn each input into a vector. Without `pooling` the model's default applies.

    Without `truncation`, an input that is too long gets an error instead of a vector. `dimensions`
    keeps only the first dimensions, and cuts them before it normalises.
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

    `max_document_tokens` cuts each document to its first tokens.
    """

    __pydantic_config__ = STRICT
    type: Literal["rank"] = "rank"
    query: NonEmpty
    documents: Annotated[ListOf[NonEmpty], Field(min_length=1, max_length=MAX_INPUTS)]
    max_document_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenize:
    """Turn a text into tokens. `add_special` adds the tokens that the model puts around a text.

    `parse_special` turns the text of a control token into that token.
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
    """Count the tokens of this request's prompt, even if they exceed the context."""

    __pydantic_config__ = STRICT
    type: Literal["count_tokens"] = "count_tokens"
    request: GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTokenizer:
    """Return the texts that begin and end this model's prompts, and its chat template."""

    __pydantic_config__ = STRICT
    type: Literal["describe_tokenizer"] = "describe_tokenizer"


TextQuery = Tokenize | Detokenize | CountTokens | DescribeTokenizer
"""Queries that need only the vocabulary and the template."""

Query = Annotated[Embed | Rank | TextQuery, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The vector of one input: 32-bit floats, little-endian, in base64.

    `num_tokens` is the input's length without the `num_cut` tokens that were cut off.
    """

    __pydantic_config__ = STRICT
    vector: Annotated[str, Field(max_length=MAX_VECTOR, pattern=_FLOATS)] = ""
    num_tokens: NumTokens = 0
    num_cut: NumTokens = 0
    error: WireError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A vector or an error for each input, in the order of the inputs."""

    __pydantic_config__ = STRICT
    type: Literal["embedded"] = "embedded"
    vectors: Annotated[ListOf[Vector], Field(max_length=MAX_INPUTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One document's score; `num_tokens` counts the tokens of the document with the query."""

    __pydantic_config__ = STRICT
    score: Annotated[float, Field(ge=-MOST_SCORE, le=MOST_SCORE)] = 0.0
    num_tokens: NumTokens = 0
    error: WireError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A score or an error for each document, in the order of the documents."""

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
    """The text; `bytes_base64` has the tokens' bytes if they are not valid UTF-8."""

    __pydantic_config__ = STRICT
    type: Literal["detokenized"] = "detokenized"
    text: Annotated[str, Field(max_length=MAX_TEXT_BACK)]
    bytes_base64: Annotated[str, Field(max_length=2 * MAX_TEXT_BACK)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The number of tokens of the prompt."""

    __pydantic_config__ = STRICT
    type: Literal["counted"] = "counted"
    num_tokens: NumTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerDescription:
    """The tokenizer's texts; `None` if the model lacks one.

    A template longer than `MAX_TEXT` is not sent.
    """

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
