"""Every field that OpenAI's library knows is obeyed, ignored or refused by name."""

from openai.types.responses import response_create_params

from arriero.balancer.api.openai.responses.requests import RESPONSE_FIELDS
from tests.balancer.api.sdk_fields import unlisted_names


def test_every_field_is_of_one_kind() -> None:
    assert unlisted_names(RESPONSE_FIELDS, response_create_params.ResponseCreateParamsBase) == []
