"""Every field that OpenAI's library knows is obeyed, ignored or refused by name."""

from typing import Any

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from arriero.balancer.api.fields.field_table import FieldTable
from arriero.balancer.api.openai.embeddings import EMBEDDINGS_FIELDS
from arriero.balancer.api.openai.requests import CHAT_FIELDS, COMPLETION_FIELDS
from tests.balancer.api.sdk_fields import unlisted_names


@pytest.mark.parametrize(
    ("table", "parameters"),
    [
        (CHAT_FIELDS, chat_create_params.CompletionCreateParamsBase),
        (COMPLETION_FIELDS, completion_create_params.CompletionCreateParamsBase),
        (EMBEDDINGS_FIELDS, embedding_create_params.EmbeddingCreateParams),
    ],
)
def test_every_field_is_of_one_kind(table: FieldTable, parameters: Any) -> None:
    assert unlisted_names(table, parameters) == []
