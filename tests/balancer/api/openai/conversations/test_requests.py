"""Bodies of `/v1/conversations`."""

import json
from typing import Any

import pytest
from openai.types.conversations import conversation_create_params

from arriero.balancer.api.openai.conversations.requests import (
    CONVERSATION_FIELDS,
    parse_items,
    parse_labels,
    parse_new,
)
from arriero.balancer.api.openai.responses.items import InputMessage, InputText
from arriero.shared.errors import InvalidRequest
from tests.balancer.api.sdk_fields import unlisted_names


def test_every_field_is_of_one_kind() -> None:
    params = conversation_create_params.ConversationCreateParams
    assert unlisted_names(CONVERSATION_FIELDS, params) == []


def test_a_new_one() -> None:
    assert parse_new(b"").items == ()
    content = [{"type": "input_text", "text": "Hi"}]
    body = {"items": [{"role": "user", "content": content}], "metadata": {"a": "b"}}
    asked = parse_new(json.dumps(body).encode())
    assert asked.items == (InputMessage(role="user", content=(InputText(text="Hi"),)),)
    assert asked.metadata == {"a": "b"}


def test_other_metadata() -> None:
    assert parse_labels(b'{"metadata": null}').metadata == {}
    assert parse_labels(b'{"metadata": {"a": "b"}}').metadata == {"a": "b"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "items"),
        ({"items": []}, "items"),
        ({"items": "Hi"}, "items"),
        ({"items": [{"type": "computer_call"}]}, "items[0].type"),
        ({"items": [{"role": "user", "content": [{"type": "input_file"}]}]}, "items[0].content"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_items(json.dumps(body).encode())
    assert caught.value.field is not None and caught.value.field.startswith(field)
