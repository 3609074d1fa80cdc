"""Converts bodies of native calls that need no slot to queries, and results to answers.

| call | body | answer |
| --- | --- | --- |
| `embed` | `input`, `pooling`, `normalize`, `dimensions`, `encoding` | `embeddings`, `usage` |
| `tokenize` | `text`, `add_special`, `parse_special` | `tokens`, `num_tokens` |
| `detokenize` | `tokens` | `text`, and `bytes` where the tokens are no whole UTF-8 |
| `count_tokens` | as for `generate` | `num_tokens` |

Each takes a `model`. An input that cannot be embedded has an `error` in its place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NotRequired

from pydantic import TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from ....shared.errors import from_agent, public_body
from ....shared.inference import Count
from ....shared.queries import (
    Counted,
    CountTokens,
    Detokenizable,
    Detokenize,
    Detokenized,
    EmbedInput,
    PlainText,
    Result,
    Tokenize,
    Tokenized,
    Vector,
)
from ....shared.strict import LAZY, STRICT
from ....shared.validation import parse_json
from ...fleet.queries.query import QueryRequest
from ..common import embeddings
from ..common.body_fields import body_fields, in_list, parse_named
from ..common.embeddings import Encoding, encoded
from ..common.parts import only, vectors_of
from ..openapi.document import ErrorAnswer
from ..openapi.schemas import Body
from .requests import GENERATE_BODY, parse_generate

# ---- answers


class EmbeddedInput(TypedDict):
    """An input's vector: numbers, or 32-bit floats in base64."""

    index: Count
    embedding: list[float] | str
    num_tokens: Count


class FailedInput(ErrorAnswer):
    """An input that cannot be embedded."""

    index: Count


class EmbedUsage(TypedDict):
    """Token counts of all inputs together."""

    prompt_tokens: Count


class EmbedFields(TypedDict):
    """A vector for each input."""

    embeddings: Iterable[EmbeddedInput | FailedInput]
    usage: EmbedUsage


class EmbedAnswer(EmbedFields):
    """A vector for each input, in their order."""

    id: str


class TokenizeFields(TypedDict):
    """The tokens of a text."""

    tokens: tuple[Count, ...]
    num_tokens: Count


class TokenizeAnswer(TokenizeFields):
    """The tokens of a text."""

    id: str


class DetokenizeFields(TypedDict):
    """The text of tokens; with `bytes` in base64 if they are not valid UTF-8."""

    text: str
    bytes: NotRequired[str]


class DetokenizeAnswer(DetokenizeFields):
    """The text of tokens; with `bytes` in base64 if they are not valid UTF-8."""

    id: str


class CountFields(TypedDict):
    """The number of tokens of a prompt, including tokens that the template adds."""

    num_tokens: Count


class CountAnswer(CountFields):
    """The number of tokens of a prompt, including tokens that the template adds."""

    id: str


QueryFields = EmbedFields | TokenizeFields | DetokenizeFields | CountFields


# ---- calls


@dataclass(frozen=True, slots=True)
class QueryCall:
    """A query, and a function that makes the answer from its results, for `answering.written`."""

    query_request: QueryRequest
    answer: Callable[[Sequence[Result]], QueryFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmbedBody(embeddings.EmbedBodyFields):
    encoding: Encoding = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenizeBody:
    __pydantic_config__ = STRICT

    text: PlainText
    model: str | None = None
    add_special: bool = False
    parse_special: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _DetokenizeBody:
    __pydantic_config__ = STRICT

    tokens: Detokenizable
    model: str | None = None


_embed = TypeAdapter(_EmbedBody)
_one_input: TypeAdapter[EmbedInput] = TypeAdapter(EmbedInput, config=LAZY)
_tokenize = TypeAdapter(_TokenizeBody)
_detokenize = TypeAdapter(_DetokenizeBody)


def embed(body: bytes) -> QueryCall:
    """Parse the body of `embed`. Raises `InvalidRequest`, as do the other functions here."""
    given = body_fields(body)
    names = in_list(given, "input")
    parsed = parse_named(_embed, to_json(given), names)

    def answer(results: Sequence[Result]) -> EmbedFields:
        vectors = vectors_of(results)
        return {
            "embeddings": (_embedding(*each, parsed.encoding) for each in enumerate(vectors)),
            "usage": {"prompt_tokens": sum(each.num_tokens for each in vectors)},
        }

    return QueryCall(parsed.query(), answer)


def tokenize(body: bytes) -> QueryCall:
    """Parse the body of `tokenize`."""
    parsed = parse_json(_tokenize, body)
    query = Tokenize(
        text=parsed.text, add_special=parsed.add_special, parse_special=parsed.parse_special
    )

    def answer(results: Sequence[Result]) -> TokenizeFields:
        tokens = only(results, Tokenized).tokens
        return {"tokens": tokens, "num_tokens": len(tokens)}

    return QueryCall(QueryRequest(kind="text", parts=(query,), model=parsed.model), answer)


def detokenize(body: bytes) -> QueryCall:
    """Parse the body of `detokenize`."""
    parsed = parse_json(_detokenize, body)

    def answer(results: Sequence[Result]) -> DetokenizeFields:
        result = only(results, Detokenized)
        if result.bytes_base64 is None:
            return {"text": result.text}
        return {"text": result.text, "bytes": result.bytes_base64}

    query = Detokenize(tokens=parsed.tokens)
    return QueryCall(QueryRequest(kind="text", parts=(query,), model=parsed.model), answer)


def count_tokens(body: bytes) -> QueryCall:
    """Parse the body of `count_tokens`."""
    request = parse_generate(body)

    def answer(results: Sequence[Result]) -> CountFields:
        return {"num_tokens": only(results, Counted).num_tokens}

    query = CountTokens(request=request)
    return QueryCall(QueryRequest(kind="text", parts=(query,), model=request.model), answer)


CALLS: dict[str, Callable[[bytes], QueryCall]] = {
    "embed": embed,
    "tokenize": tokenize,
    "detokenize": detokenize,
    "count_tokens": count_tokens,
}
"""The parsers by name, which is the last path segment and the WebSocket method."""

BODIES: dict[str, Body] = {
    "embed": Body(name="EmbedBody", adapter=_embed, also={"input": _one_input}),
    "tokenize": Body(name="TokenizeBody", adapter=_tokenize, takes_nulls=False),
    "detokenize": Body(name="DetokenizeBody", adapter=_detokenize, takes_nulls=False),
    "count_tokens": GENERATE_BODY,
}


def _embedding(index: int, vector: Vector, encoding: Encoding) -> EmbeddedInput | FailedInput:
    if vector.error is not None:
        return {"index": index, "error": public_body(from_agent(vector.error))}
    return {
        "index": index,
        "embedding": encoded(vector, encoding),
        "num_tokens": vector.num_tokens,
    }
