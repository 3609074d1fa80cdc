"""The Responses API as operations of an OpenAPI document."""

from .....shared.errors import InvalidRequest, NotFound
from ...openapi.document import OF_MODELS, Operation, events_or, json_answer, parameter
from ...openapi.schemas import one_of
from ..operations import OPENAI_ERRORS
from . import answer_types
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
                answer_types.Response, "`response.completed`, `…incomplete` or `…failed`"
            ),
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
                answer_types.CountedInput,
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
        answers={200: json_answer("It.", answer_types.Response)},
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
                answer_types.DeletedResponse,
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
        answers={200: json_answer("One page of them.", answer_types.InputItems)},
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
