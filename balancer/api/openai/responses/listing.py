"""A page of an answer's input items, as OpenAI lists things."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.validation import invalid
from .items import Item, Json, listed


class Page(BaseModel):
    """Which items are wanted: `limit` of them, behind the one with the id `after`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


def parse_page(query: Mapping[str, str]) -> Page:
    """What a query string asks for. Raises `InvalidRequest`."""
    asked = {name: value for name, value in query.items() if not name.startswith("include")}
    try:
        return Page.model_validate(asked)
    except ValidationError as error:
        raise invalid(error, to_json(asked)) from error


def input_list(items: Sequence[Item], page: Page) -> Json:
    """`page` of `items`. Raises `InvalidRequest` when there is no item `page.after`."""
    ordered = list(items) if page.order == "asc" else list(reversed(items))
    if page.after is not None:
        ids = [item.id for item in ordered]
        if page.after not in ids:
            raise InvalidRequest(f"`after`: there is no item {page.after[:100]!r}", field="after")
        ordered = ordered[ids.index(page.after) + 1 :]
    shown = [listed(item) for item in ordered[: page.limit]]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else "",
        "last_id": shown[-1]["id"] if shown else "",
        "has_more": len(ordered) > page.limit,
    }
