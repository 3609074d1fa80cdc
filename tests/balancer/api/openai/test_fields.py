"""Every field that OpenAI's library knows is obeyed, ignored or refused by name."""

import json
from typing import Any

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from arriero.balancer.api.fields.field_table import FieldNotes, FieldTable
from arriero.balancer.api.openai.completions.requests import CHAT_FIELDS, COMPLETION_FIELDS
from arriero.balancer.api.openai.queries.embeddings import EMBEDDINGS_FIELDS
from arriero.shared.errors import InvalidRequest
from tests.balancer.api.sdk_fields import unlisted


@pytest.mark.parametrize(
    ("table", "parameters"),
    [
        (CHAT_FIELDS, chat_create_params.CompletionCreateParamsBase),
        (COMPLETION_FIELDS, completion_create_params.CompletionCreateParamsBase),
        (EMBEDDINGS_FIELDS, embedding_create_params.EmbeddingCreateParams),
    ],
)
def test_every_field_is_of_one_kind(table: FieldTable, parameters: Any) -> None:
    assert unlisted(table, parameters) == []


def test_tools_of_chats_that_are_no_functions_are_left_out_and_told() -> None:
    function = {"type": "function", "function": {"name": "f", "anything": 1}, "cache": {}}
    body = {"messages": [{"role": "user", "content": "hi"}]}
    notes = FieldNotes()
    custom = {"type": "custom", "custom": {"name": "g"}}
    kept = CHAT_FIELDS.given(json.dumps({**body, "tools": [custom, function]}).encode(), notes)
    assert kept == {**body, "tools": [function]}
    assert notes.labels == ("tools[].type=custom",)


@pytest.mark.parametrize(
    ("message", "field", "reason"),
    [
        ({"role": "user", "content": [{"type": "file"}]}, "content[0].type", "cannot read files"),
        (
            {"role": "user", "content": [{"type": "video"}]},
            "content[0].type",
            "pictures and sounds",
        ),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom"}]},
            "tool_calls[0].type",
            "only functions",
        ),
    ],
)
def test_what_messages_cannot_hold_is_refused(message: Any, field: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        CHAT_FIELDS.given(json.dumps({"messages": [message]}).encode())
    assert caught.value.field == f"messages[0].{field}"
