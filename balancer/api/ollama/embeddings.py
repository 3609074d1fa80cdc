"""Converts the bodies of `/api/embed` and `/api/embeddings` to queries, and results to answers.

As in Ollama, `/api/embed` shortens inputs that are too long, unless `truncate` is false.

An error in one input fails the whole call, and names the index of the input.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NotRequired

from pydantic import Field, TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from ....shared.inference import Count
from ....shared.queries import MAX_INPUTS, Dimensions, EmbedInput, Norm, Result, Truncation
from ....shared.strict import STRICT, ListOf
from ...fleet.queries.query import QueryRequest
from ..common.body_fields import in_list, parse_named
from ..common.embeddings import EmbedBodyFields, encoded, named
from ..common.parts import first_fault, vectors_of
from ..fields.field_table import FieldNotes, FieldTable
from . import fields
from .options import Options
from .requests import ModelName


class OllamaVectors(TypedDict):
    """A vector for each input; durations are in nanoseconds.

    `truncated` are the indices of inputs that were too long and were shortened.
    """

    model: str
    embeddings: Iterable[list[float]]
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count
    truncated: NotRequired[list[Count]]


class OllamaVector(TypedDict):
    """One vector."""

    embedding: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OllamaEmbedBody:
    __pydantic_config__ = STRICT

    model: ModelName
    input: Annotated[ListOf[EmbedInput], Field(max_length=MAX_INPUTS)] = ()
    dimensions: Dimensions | None = None
    truncate: bool = True
    options: Options | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmbeddingsBody:
    __pydantic_config__ = STRICT

    model: ModelName
    prompt: str = ""
    input: Annotated[ListOf[EmbedInput], Field(max_length=1)] = ()
    options: Options | None = None


EMBED_FIELDS = FieldTable(TypeAdapter(_OllamaEmbedBody), fields.EMBED)
EMBEDDINGS_FIELDS = FieldTable(TypeAdapter(_EmbeddingsBody), fields.EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """A parsed call with texts to embed. Errors name the body's field `place`."""

    model: str
    inputs: tuple[EmbedInput, ...]
    place: str
    dimensions: int | None = None
    normalize: Norm = "l2"
    is_truncated: bool = False

    def query_request(self, model: str) -> QueryRequest:
        """Return the query for the named model. The call must have an input."""
        fields = EmbedBodyFields(
            input=self.inputs, model=model, normalize=self.normalize, dimensions=self.dimensions
        )
        return fields.query(Truncation(keeps="first") if self.is_truncated else None)

    def vectors(self, results: Sequence[Result]) -> tuple[Iterator[list[float]], int, list[Count]]:
        """Return the vectors, the number of tokens, and the indices of shortened inputs.

        Raises the error of the first faulty input.
        """
        vectors = vectors_of(results)
        if (fault := first_fault(vectors)) is not None:
            raise named(fault, self.place.replace("[]", f"[{fault.index}]"))
        numbers = (_numbers(encoded(vector, "float")) for vector in vectors)
        cut = [place for place, vector in enumerate(vectors) if vector.num_cut]
        return numbers, sum(vector.num_tokens for vector in vectors), cut


def parse_embed(body: bytes, notes: FieldNotes | None = None) -> EmbedCall:
    """Parse the body of `/api/embed`. Raises `InvalidRequest`, as `parse_embeddings` does."""
    given = EMBED_FIELDS.given(body, notes)
    asked = given.pop("input", None)
    if asked not in (None, ""):
        given["input"] = asked
    names = in_list(given, "input")
    parsed = parse_named(EMBED_FIELDS.adapter, to_json(given), names)
    place = "input[]" if isinstance(asked, list) else "input"
    return EmbedCall(
        parsed.model, parsed.input, place, parsed.dimensions, is_truncated=parsed.truncate
    )


def parse_embeddings(body: bytes, notes: FieldNotes | None = None) -> EmbedCall:
    """Parse the body of `/api/embeddings`, whose vector has the model's own length.

    Some clients send the prompt as `input`, the name of the field in `/api/embed`.
    """
    given = EMBEDDINGS_FIELDS.given(body, notes)
    names = in_list(given, "input")
    parsed = parse_named(EMBEDDINGS_FIELDS.adapter, to_json(given), names)
    inputs = (parsed.prompt,) if parsed.prompt else parsed.input
    place = "prompt" if parsed.prompt else "input"
    return EmbedCall(parsed.model, inputs, place, normalize="none")


def vectors_answer(call: EmbedCall, results: Sequence[Result], nanoseconds: int) -> OllamaVectors:
    """Return the answer of `/api/embed`, for `written`; the call took `nanoseconds`."""
    numbers, num_tokens, cut = call.vectors(results)
    answer: OllamaVectors = {
        "model": call.model,
        "embeddings": numbers,
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": num_tokens,
    }
    if cut:
        answer["truncated"] = cut
    return answer


def vector_answer(call: EmbedCall, results: Sequence[Result]) -> OllamaVector:
    """Return the answer of `/api/embeddings`."""
    numbers, _, _ = call.vectors(results)
    return {"embedding": next(numbers, [])}


def _numbers(vector: str | list[float]) -> list[float]:
    if isinstance(vector, str):
        raise TypeError("a vector was not decoded")
    return vector
