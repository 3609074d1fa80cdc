"""Every field that Anthropic's library knows, betas included, is obeyed, ignored or refused."""

from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_tokens_params
from anthropic.types.beta import message_create_params as beta_create_params

from arriero.balancer.api.anthropic.requests import COUNT_FIELDS, MESSAGES_FIELDS
from tests.balancer.api.sdk_fields import unlisted_names


def test_every_field_is_of_one_kind() -> None:
    assert (
        unlisted_names(
            MESSAGES_FIELDS,
            message_create_params.MessageCreateParamsBase,
            beta_create_params.MessageCreateParamsBase,
        )
        == []
    )
    assert (
        unlisted_names(
            COUNT_FIELDS,
            message_count_tokens_params.MessageCountTokensParams,
            beta_count_tokens_params.MessageCountTokensParams,
        )
        == []
    )
