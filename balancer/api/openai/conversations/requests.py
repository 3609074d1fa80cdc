"""The bodies of `/v1/conversations`.

Items, and the rules for their fields, are the same as in `/v1/responses`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from .....shared.inference import MAX_MESSAGES
from .....shared.strict import STRICT, ListOf
from ...fields.field_table import FieldNotes, FieldTable, Refused, Rule
from ..responses.fields import ITEMS
from ..responses.items import Item, plain_items
from ..responses.requests import Metadata

Json = dict[str, Any]

_RULES: Mapping[str, Rule] = {
    **{name.replace("input[]", "items[]", 1): rule for name, rule in ITEMS.items()},
    "items[].type=item_reference": Refused("send the item itself"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConversation:
    """The body that creates a conversation."""

    __pydantic_config__ = STRICT

    items: Annotated[ListOf[Item], Field(max_length=MAX_MESSAGES)] = ()
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItems:
    """The body that adds items to a conversation."""

    __pydantic_config__ = STRICT

    items: Annotated[ListOf[Item], Field(min_length=1, max_length=MAX_MESSAGES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLabels:
    """The body that changes the metadata of a conversation; null deletes it."""

    __pydantic_config__ = STRICT

    metadata: Metadata = field(default_factory=dict)


CONVERSATION_FIELDS = FieldTable(TypeAdapter(NewConversation), _RULES)
_ITEM_FIELDS = FieldTable(TypeAdapter(NewItems), _RULES)
_LABEL_FIELDS = FieldTable(TypeAdapter(NewLabels), {})


def parse_new(body: bytes, notes: FieldNotes | None = None) -> NewConversation:
    """Parse a new conversation; an empty body makes one without items. Raises `InvalidRequest`."""
    return CONVERSATION_FIELDS.parsed(body or b"{}", notes, prepare=_prepared)


def parse_items(body: bytes, notes: FieldNotes | None = None) -> NewItems:
    """Parse items to add. Raises `InvalidRequest`."""
    return _ITEM_FIELDS.parsed(body, notes, prepare=_prepared)


def parse_labels(body: bytes, notes: FieldNotes | None = None) -> NewLabels:
    """Parse new metadata. Raises `InvalidRequest`."""
    return _LABEL_FIELDS.parsed(body, notes)


def _prepared(body: Json) -> Json:
    if isinstance(body.get("items"), list):
        return {**body, "items": plain_items(body["items"])}
    return body
