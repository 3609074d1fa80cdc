"""Converts bodies of the native API to neutral requests; errors name the field.

HTTP and the WebSocket take the same bodies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter

from ....shared.errors import InvalidRequest
from ....shared.inference import GenerateRequest
from ....shared.strict import STRICT, ListOf
from ....shared.validation import parse_json
from ..common.body_fields import FieldNames
from ..common.request_checks import check_messages, check_readable, check_tools
from ..openapi.schemas import Body

MAX_BATCH_REQUESTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry(GenerateRequest):
    """One request of a batch. Without an `id`, its id is its position, such as `"0"`."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None

    def without_id(self) -> GenerateRequest:
        """Return the request without its id, as it is sent to an agent."""
        values = {field.name: getattr(self, field.name) for field in fields(GenerateRequest)}
        return GenerateRequest(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchBody:
    __pydantic_config__ = STRICT

    requests: Annotated[ListOf[BatchEntry], Field(min_length=1, max_length=MAX_BATCH_REQUESTS)]
    stream: bool = True


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """The requests of a batch. `ids[i]` is the id of `requests[i]`; no two ids are the same."""

    ids: tuple[str, ...]
    requests: tuple[GenerateRequest, ...]
    stream: bool


_generate = TypeAdapter(GenerateRequest)
_batch = TypeAdapter(_BatchBody)

GENERATE_BODY = Body(name="GenerateBody", adapter=_generate, takes_nulls=False)
BATCH_BODY = Body(name="BatchBody", adapter=_batch, takes_nulls=False)


def parse_generate(body: bytes) -> GenerateRequest:
    """Parse the body of `generate`. Raises `InvalidRequest` and `RequestTooLarge`."""
    request = parse_json(_generate, body)
    check_messages(request.messages or ())
    check_tools(request.tools or ())
    check_readable(request)
    return request


def parse_batch(body: bytes) -> RequestBatch:
    """Parse the body of `generate_batch`; one wrong request fails the batch.

    Raises `InvalidRequest` and `RequestTooLarge`.
    """
    parsed = parse_json(_batch, body)
    for position, entry in enumerate(parsed.requests):
        if not entry.stream:
            raise InvalidRequest(
                "`stream` applies to the whole batch: give it next to `requests`, not "
                "within a request",
                field=f"requests[{position}].stream",
            )
    _check_writers(parsed.requests)
    for position, entry in enumerate(parsed.requests):
        names = FieldNames({each: f"requests[{position}].{each}" for each in ("messages", "tools")})
        check_messages(entry.messages or (), names)
        check_tools(entry.tools or (), names)
        check_readable(entry)
    return RequestBatch(
        ids=_unique_ids(parsed.requests),
        requests=tuple(entry.without_id() for entry in parsed.requests),
        stream=parsed.stream,
    )


def _unique_ids(entries: Sequence[BatchEntry]) -> tuple[str, ...]:
    ids: dict[str, None] = {}
    for position, entry in enumerate(entries):
        id = str(position) if entry.id is None else entry.id
        if id in ids:
            raise InvalidRequest(
                f"an earlier request of the batch has the id {id!r} already; the id of a "
                "request without `id` is its position",
                field=f"requests[{position}].id",
            )
        ids[id] = None
    return tuple(ids)


def _check_writers(entries: Sequence[BatchEntry]) -> None:
    writers: dict[str | None, int] = {}
    for position, entry in enumerate(entries):
        if entry.save_cache and (first := writers.setdefault(entry.cache_key, position)) < position:
            raise InvalidRequest(
                f"`save_cache`: requests[{first}] already saves under the key "
                f"{entry.cache_key!r}; only one request of a batch may save under a key",
                field=f"requests[{position}].save_cache",
            )
