"""What the official client may send is in the tables."""

from collections.abc import Iterable

import pytest
from ollama._types import (
    ChatRequest,
    EmbeddingsRequest,
    EmbedRequest,
    GenerateRequest,
    Message,
    Options,
    ShowRequest,
)
from pydantic import BaseModel

from arriero.balancer.api.fields.field_table import FieldTable
from arriero.balancer.api.ollama.embeddings import EMBED_FIELDS, EMBEDDINGS_FIELDS
from arriero.balancer.api.ollama.models import SHOW_FIELDS
from arriero.balancer.api.ollama.requests import CHAT_FIELDS, GENERATE_FIELDS

BODIES: list[tuple[FieldTable, str, type[BaseModel]]] = [
    (CHAT_FIELDS, "", ChatRequest),
    (CHAT_FIELDS, "messages[].", Message),
    (CHAT_FIELDS, "messages[].tool_calls[].", Message.ToolCall),
    (CHAT_FIELDS, "messages[].tool_calls[].function.", Message.ToolCall.Function),
    (CHAT_FIELDS, "options.", Options),
    (GENERATE_FIELDS, "", GenerateRequest),
    (GENERATE_FIELDS, "options.", Options),
    (EMBED_FIELDS, "", EmbedRequest),
    (EMBEDDINGS_FIELDS, "", EmbeddingsRequest),
    (SHOW_FIELDS, "", ShowRequest),
]


def unlisted(table: FieldTable, names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in table.obeyed and name not in table.rules]


@pytest.mark.parametrize(("table", "place", "model"), BODIES)
def test_every_field_of_the_client_is_known(
    table: FieldTable, place: str, model: type[BaseModel]
) -> None:
    assert unlisted(table, (f"{place}{name}" for name in model.model_fields)) == []


def test_a_field_in_no_table_is_seen() -> None:
    assert unlisted(CHAT_FIELDS, ["model", "made_up"]) == ["made_up"]
