"""Inputs of embeddings, and vectors in the requested encoding.

Inputs are a text, a list of texts, token ids, or a list of lists of token ids. Vectors are numbers,
or 32-bit floats in base64 as agents send them.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ....shared.errors import RequestError
from ....shared.queries import (
    MAX_INPUTS,
    Dimensions,
    Embed,
    EmbedInput,
    Norm,
    Pooling,
    Truncation,
    Vector,
)
from ....shared.strict import STRICT, ListOf
from ...fleet.queries.query import QueryRequest
from .parts import Faulty, in_parts

Encoding = Literal["float", "base64"]

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedBodyFields:
    """The fields that all calls for embeddings share."""

    __pydantic_config__ = STRICT

    input: Annotated[ListOf[EmbedInput], Field(min_length=1, max_length=MAX_INPUTS)]
    model: str | None = None
    pooling: Pooling | None = None
    normalize: Norm = "l2"
    dimensions: Dimensions | None = None

    def query(self, truncation: Truncation | None = None) -> QueryRequest:
        """Return the query with which agents embed the inputs."""
        parts = tuple(
            Embed(
                inputs=part,
                pooling=self.pooling,
                normalize=self.normalize,
                dimensions=self.dimensions,
                truncation=truncation,
            )
            for part in in_parts(self.input)
        )
        return QueryRequest(kind="embed", parts=parts, model=self.model)


def named(fault: Faulty, place: str) -> RequestError:
    """Return the error of one of several inputs with the input's index.

    This is for APIs in which one error fails the call.
    """
    message = f"`{place}`: {fault.error.message}"
    return type(fault.error)(message, field=place, retry_after=fault.error.retry_after)


def encoded(vector: Vector, encoding: Encoding) -> str | list[float]:
    """Return the vector in `encoding`; base64 is passed through."""
    if encoding == "base64":
        return vector.vector
    data = base64.b64decode(vector.vector)
    return list(struct.unpack(f"<{len(data) // _FLOAT_BYTES}f", data))
