"""The body of `POST /v1/batches`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from .....shared.errors import InvalidRequest
from .....shared.quantities import parse_duration
from .....shared.strict import at_most
from .....shared.validation import parse_json
from ....jobs.core.batch import NewBatch

LONGEST_WINDOW = 30 * 86_400.0
"""Seconds."""

_STRICT = ConfigDict(extra="forbid", strict=True)

Endpoint = Literal[
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpiresAfter:
    """Seconds from the creation of the result files on."""

    __pydantic_config__ = _STRICT

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """`completion_window` is OpenAI's `24h`, or another duration of up to 30 days."""

    __pydantic_config__ = _STRICT

    input_file_id: Annotated[str, Field(max_length=256)]
    endpoint: Endpoint
    completion_window: Annotated[str, Field(pattern=r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$")]
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
            at_most(16),
        ]
        | None
    ) = None
    output_expires_after: _ExpiresAfter | None = None


_body = TypeAdapter(_Body)


def parse_batch(body: bytes) -> NewBatch:
    """Raises `InvalidRequest`."""
    parsed = parse_json(_body, body)
    return NewBatch(
        input_file=parsed.input_file_id,
        endpoint=parsed.endpoint,
        window=_window(parsed.completion_window),
        completion_window=parsed.completion_window,
        metadata=parsed.metadata,
        output_expires_after=(
            None if parsed.output_expires_after is None else parsed.output_expires_after.seconds
        ),
    )


def _window(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_WINDOW:
        raise InvalidRequest(
            "`completion_window`: must be a duration of at most 30d, such as 24h",
            field="completion_window",
        )
    return seconds
