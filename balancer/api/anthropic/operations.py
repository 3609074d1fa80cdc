"""The Messages API as operations of an OpenAPI document."""

from ..openapi.document import OF_MODELS, Errors, Operation, events_or, json_answer, parameter
from ..openapi.schemas import (
    COUNT,
    OBJECT,
    STRING,
    Schema,
    either,
    listing,
    nullable,
    one_of,
    record,
)
from .errors import anthropic_status, anthropic_type
from .requests import COUNT_BODY, MESSAGES_BODY

ANTHROPIC_ERRORS = Errors(
    "AnthropicError",
    record(
        {
            "type": one_of("error"),
            "error": record({"type": STRING, "message": STRING}),
            "request_id": STRING,
        }
    ),
    anthropic_type,
    anthropic_status,
)

COMPONENTS: dict[str, Schema] = {
    "Message": record(
        {
            "id": STRING,
            "type": one_of("message"),
            "role": one_of("assistant"),
            "model": STRING,
            "content": listing(
                either(
                    record({"type": one_of("text"), "text": STRING}),
                    record({"type": one_of("thinking"), "thinking": STRING, "signature": STRING}),
                    record(
                        {
                            "type": one_of("tool_use"),
                            "id": STRING,
                            "name": STRING,
                            "input": OBJECT,
                        }
                    ),
                )
            ),
            "stop_reason": one_of(
                *("end_turn", "stop_sequence", "max_tokens", "tool_use"),
                "model_context_window_exceeded",
            ),
            "stop_sequence": nullable(STRING),
            "usage": record(
                {
                    "input_tokens": COUNT,
                    "cache_read_input_tokens": COUNT,
                    "cache_creation_input_tokens": COUNT,
                    "output_tokens": COUNT,
                    "output_tokens_details": record({"thinking_tokens": COUNT}),
                }
            ),
        }
    )
}

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
            200: events_or("Message", "`message_stop` or `error`"),
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
        answers={200: json_answer("How many.", record({"input_tokens": COUNT}))},
        errors=OF_MODELS,
        told=ANTHROPIC_ERRORS,
    ),
)
