"""The Messages API as operations of an OpenAPI document."""

from ..openapi.document import OF_MODELS, Errors, Operation, events_or, json_answer, parameter
from . import answer_types, event_types
from .errors import anthropic_status, anthropic_type
from .requests import COUNT_BODY, MESSAGES_BODY

ANTHROPIC_ERRORS = Errors(answer_types.AnthropicError, anthropic_type, anthropic_status)

_VERSION = parameter("anthropic-version", "header")

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/messages",
        name="CreateMessage",
        summary="Anthropic's messages.",
        parameters=(_VERSION,),
        body=MESSAGES_BODY,
        answers={
            200: events_or(
                answer_types.MessageAnswer,
                "`message_stop` or `error`",
                item=event_types.MessageStreamEvent,
            ),
        },
        errors=OF_MODELS,
        told=ANTHROPIC_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/messages/count_tokens",
        name="CountMessage",
        summary="Counts the tokens that a message's input would have.",
        parameters=(_VERSION,),
        body=COUNT_BODY,
        answers={200: json_answer("The number of tokens.", answer_types.CountedMessage)},
        errors=OF_MODELS,
        told=ANTHROPIC_ERRORS,
    ),
)
