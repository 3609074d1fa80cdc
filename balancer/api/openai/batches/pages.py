"""One page of a list: what a query string asks for, and the list around what was found."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from .....shared.validation import invalid
from ....store.jobs.records import SavedFile
from .answer_types import BatchObject, FileObject, ListOf

Text = Annotated[str, Field(max_length=256)]
T = TypeVar("T", FileObject, BatchObject)
P = TypeVar("P", bound=BaseModel)


class BatchPage(BaseModel):
    """Up to `limit` batches behind the one with the id `after`, the newest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Text | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class FilePage(BaseModel):
    """Up to `limit` files behind the one with the id `after`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Text | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: Text | None = None


def parse_page(kind: type[P], query: Mapping[str, str]) -> P:
    """Raises `InvalidRequest`."""
    try:
        return kind.model_validate(dict(query))
    except ValidationError as error:
        raise invalid(error, to_json(dict(query))) from error


def file_object(file: SavedFile) -> FileObject:
    """A file as it is shown."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": int(file.created_at),
        "expires_at": None if file.expires_at is None else int(file.expires_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def page_of(objects: Sequence[T], limit: int) -> ListOf[T]:
    """`objects` may have one more than the page."""
    data = list(objects[:limit])
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(objects) > limit,
    }
