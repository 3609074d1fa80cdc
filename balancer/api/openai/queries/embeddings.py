"""OpenAI's `/v1/embeddings`: converts bodies to queries, and results to answers.

An error in one input fails the whole call, and names the index of the input. Extensions are
`pooling` and `normalize`, as in the native call, and `truncate_prompt_tokens`, as in vLLM.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from .....shared.errors import InvalidRequest
from .....shared.inference import Count
from .....shared.inference.request import TruncatePromptTokens
from .....shared.queries import Result, Truncation
from ....fleet.queries.query import QueryRequest
from ...common.body_fields import in_list, parse_named
from ...common.embeddings import EmbedBodyFields, Encoding, encoded, named
from ...common.parts import first_fault, vectors_of
from ...fields.field_table import FieldNotes, FieldTable
from .. import fields


class QueryUsage(TypedDict):
    """Token counts of a call that generates nothing."""

    prompt_tokens: Count
    total_tokens: Count


class Embedding(TypedDict):
    """An input's vector: numbers, or 32-bit floats in base64."""

    object: Literal["embedding"]
    index: Count
    embedding: list[float] | str


class Embeddings(TypedDict):
    """A vector for each input, in their order."""

    object: Literal["list"]
    data: Iterable[Embedding]
    model: str
    usage: QueryUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class _CreateEmbeddingsBody(EmbedBodyFields):
    encoding_format: Encoding = "float"
    truncate_prompt_tokens: TruncatePromptTokens | None = None

    def truncation(self) -> Truncation | None:
        """Return vLLM's truncation, which keeps the last tokens; -1 keeps as many as fit."""
        most = self.truncate_prompt_tokens
        if most == 0:
            raise InvalidRequest(
                "`truncate_prompt_tokens` must be at least 1, or -1, not 0",
                field="truncate_prompt_tokens",
            )
        return None if most is None else Truncation(keeps="last", most=None if most < 0 else most)


EMBEDDINGS_FIELDS = FieldTable(TypeAdapter(_CreateEmbeddingsBody), fields.EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class EmbeddingsCall:
    """A parsed call. `is_list`: the input was a list, even if it had one entry."""

    query_request: QueryRequest
    encoding: Encoding
    is_list: bool

    def answer(self, model: str, results: Sequence[Result]) -> Embeddings:
        """Return the body of the answer, for `written`.

        Raises the error of the first faulty input.
        """
        vectors = vectors_of(results)
        if (fault := first_fault(vectors)) is not None:
            raise named(fault, f"input[{fault.index}]" if self.is_list else "input")
        num_tokens = sum(vector.num_tokens for vector in vectors)
        return {
            "object": "list",
            "data": (
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": encoded(vector, self.encoding),
                }
                for index, vector in enumerate(vectors)
            ),
            "model": model,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }


def parse_embeddings(body: bytes, notes: FieldNotes | None = None) -> EmbeddingsCall:
    """Parse the body of `/v1/embeddings`. Raises `InvalidRequest`."""
    given = EMBEDDINGS_FIELDS.given(body, notes)
    asked = given.get("input")
    names = in_list(given, "input")
    parsed = parse_named(EMBEDDINGS_FIELDS.adapter, to_json(given), names)
    return EmbeddingsCall(
        parsed.query(parsed.truncation()),
        parsed.encoding_format,
        is_list=given.get("input") is asked,
    )
