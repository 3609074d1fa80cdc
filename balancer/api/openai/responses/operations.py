"""The Responses API as operations of an OpenAPI document."""

from .....shared.errors import InvalidRequest, NotFound
from ...openapi.document import OF_MODELS, Operation, events_or, json_answer, parameter
from ...openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER,
    STRING,
    Schema,
    listing,
    nullable,
    one_of,
    record,
    ref,
)
from ..operations import OPENAI_ERRORS
from .requests import RESPONSE_BODY

_ITEM: Schema = {
    "type": "object",
    "properties": {
        "id": STRING,
        "type": one_of("message", "reasoning", "function_call", "function_call_output"),
        "status": one_of("in_progress", "completed", "incomplete"),
    },
    "required": ["id", "type", "status"],
}

COMPONENTS: dict[str, Schema] = {
    "ResponseItem": _ITEM,
    "Response": {
        "type": "object",
        "properties": {
            "id": STRING,
            "object": one_of("response"),
            "created_at": INTEGER,
            "completed_at": nullable(INTEGER),
            "status": one_of("completed", "incomplete"),
            "incomplete_details": nullable(record({"reason": one_of("max_output_tokens")})),
            "model": STRING,
            "output": listing(ref("ResponseItem")),
            "previous_response_id": nullable(STRING),
            "usage": record(
                {
                    "input_tokens": COUNT,
                    "input_tokens_details": record(
                        {"cached_tokens": COUNT, "cache_write_tokens": COUNT}
                    ),
                    "output_tokens": COUNT,
                    "output_tokens_details": record({"reasoning_tokens": COUNT}),
                    "total_tokens": COUNT,
                }
            ),
        },
        "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
    },
    "ResponseItems": record(
        {
            "object": one_of("list"),
            "data": listing(ref("ResponseItem")),
            "first_id": STRING,
            "last_id": STRING,
            "has_more": BOOLEAN,
        }
    ),
}

_ID = parameter("id", "path", required=True)
_PAGE = (
    parameter("after", "query"),
    parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 100}),
    parameter("order", "query", one_of("asc", "desc")),
)

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/responses",
        name="CreateResponse",
        summary="OpenAI's responses.",
        body=RESPONSE_BODY,
        answers={
            200: events_or("Response", "`response.completed`, `…incomplete` or `…failed`"),
        },
        errors=(*OF_MODELS, NotFound),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/responses/input_tokens",
        name="CountResponse",
        summary="Counts the tokens that a response's input would have.",
        body=RESPONSE_BODY,
        answers={
            200: json_answer(
                "How many.",
                record({"object": one_of("response.input_tokens"), "input_tokens": COUNT}),
            )
        },
        errors=(*OF_MODELS, NotFound),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{id}",
        name="RetrieveResponse",
        summary="An answer that was kept.",
        parameters=(_ID,),
        answers={200: json_answer("It.", ref("Response"))},
        errors=(InvalidRequest, NotFound),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{id}",
        name="DeleteResponse",
        summary="Lets go of an answer that was kept.",
        parameters=(_ID,),
        answers={
            200: json_answer(
                "It is gone.",
                record({"id": STRING, "object": one_of("response"), "deleted": BOOLEAN}),
            )
        },
        errors=(NotFound,),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{id}/input_items",
        name="ResponseInput",
        summary="The items that an answer's request sent.",
        parameters=(_ID, *_PAGE),
        answers={200: json_answer("One page of them.", ref("ResponseItems"))},
        errors=(InvalidRequest, NotFound),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/responses/{id}/cancel",
        name="CancelResponse",
        summary="Only says that the response has ended.",
        parameters=(_ID,),
        answers={},
        errors=(InvalidRequest, NotFound),
        told=OPENAI_ERRORS,
    ),
)
