"""The Responses API as operations of an OpenAPI document."""

from .....shared.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    RequestTimeout,
    StoreUnavailable,
)
from ...openapi.document import OF_MODELS, Operation, events_or, json_answer, parameter
from ...openapi.schemas import one_of
from ..operations import OPENAI_ERRORS
from . import answer_types, event_types
from .requests import RESPONSE_BODY

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
            200: events_or(
                answer_types.Response,
                "`response.completed`, `…incomplete` or `…failed`",
                item=event_types.ResponseStreamEvent,
            ),
        },
        errors=(*OF_MODELS, NotFound, Conflict, StoreUnavailable),
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
                "The number of tokens.",
                answer_types.CountedInput,
            )
        },
        errors=(*OF_MODELS, NotFound, Conflict, StoreUnavailable),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{id}",
        name="RetrieveResponse",
        summary="A stored response, or one that runs in the background.",
        parameters=(
            _ID,
            parameter("stream", "query", {"type": "boolean"}),
            parameter("starting_after", "query", {"type": "integer", "minimum": 0}),
        ),
        answers={
            200: events_or(
                answer_types.Response,
                "`response.completed`, `…incomplete` or `…failed`",
                item=event_types.ResponseStreamEvent,
            ),
        },
        errors=(InvalidRequest, NotFound, StoreUnavailable),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{id}",
        name="DeleteResponse",
        summary="Deletes a stored response.",
        parameters=(_ID,),
        answers={
            200: json_answer(
                "The response is deleted.",
                answer_types.DeletedResponse,
            )
        },
        errors=(NotFound, StoreUnavailable),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{id}/input_items",
        name="ResponseInput",
        summary="The input items of a stored response.",
        parameters=(_ID, *_PAGE),
        answers={200: json_answer("One page of the items.", answer_types.InputItems)},
        errors=(InvalidRequest, NotFound, StoreUnavailable),
        told=OPENAI_ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/responses/{id}/cancel",
        name="CancelResponse",
        summary="Ends a response in the background early.",
        parameters=(_ID,),
        answers={200: json_answer("The response.", answer_types.Response)},
        errors=(InvalidRequest, NotFound, RequestTimeout, StoreUnavailable),
        told=OPENAI_ERRORS,
    ),
)
