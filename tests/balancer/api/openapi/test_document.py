"""Operations to a document: what it says of bodies, answers and errors."""

from typing_extensions import TypedDict

from arriero.balancer.api.openapi.document import (
    OF_MODELS,
    Answer,
    Errors,
    Operation,
    document,
    json_answer,
    parameter,
)
from arriero.balancer.api.openapi.schemas import STRING
from arriero.shared.errors import NotFound, QueueFull, ShuttingDown


class Trouble(TypedDict):
    """It went wrong."""

    why: str


TOLD = Errors(Trouble, lambda error: error.code)
TROUBLE = {
    "description": "It went wrong.",
    "type": "object",
    "properties": {"why": STRING},
    "required": ["why"],
    "additionalProperties": False,
}


def only(operation: Operation) -> dict[str, object]:
    made = document(
        title="A", version="1", operations=[operation], components={"Thing": {"type": "object"}}
    )
    assert made["openapi"] == "3.1.0"
    assert made["info"] == {"title": "A", "version": "1"}
    assert made["components"]["schemas"] == {
        "Thing": {"type": "object"},
        "Trouble": TROUBLE,
    }
    found: dict[str, object] = made["paths"][operation.path][operation.method.lower()]
    return found


def test_an_operation() -> None:
    operation = Operation(
        method="GET",
        path="/things/{id}",
        name="OneThing",
        summary="A thing.",
        parameters=(parameter("id", "path", required=True),),
        answers={200: json_answer("It.", STRING), 204: Answer("Nothing.")},
        errors=(NotFound,),
        told=TOLD,
    )
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Trouble"}}}
    assert only(operation) == {
        "operationId": "OneThing",
        "summary": "A thing.",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": STRING}],
        "responses": {
            "200": {"description": "It.", "content": {"application/json": {"schema": STRING}}},
            "204": {"description": "Nothing."},
            "401": {
                "description": "`unauthorized`: No access key, or one that is unknown, revoked or "
                "expired.",
                "content": error,
            },
            "403": {
                "description": "`forbidden`: The access key's role may not do this, or a web page "
                "of another origin tried to.\n`forbidden_host`: `Host` is not an address, "
                "`localhost`, or a name of the balancer (`--allowed-host`).",
                "content": error,
            },
            "404": {
                "description": "`not_found`: No such path, agent or request.",
                "content": error,
            },
            "500": {
                "description": "`internal_error`: A fault in Arriero; its log has the details.",
                "content": error,
            },
        },
    }


def test_errors_of_one_status_are_one_answer() -> None:
    operation = Operation(
        method="GET",
        path="/",
        name="A",
        summary="",
        answers={},
        errors=(QueueFull, ShuttingDown, QueueFull),
        told=TOLD,
    )
    responses = only(operation)["responses"]
    assert isinstance(responses, dict)
    assert responses["503"]["description"].splitlines() == [
        "`queue_full`: The queue is full.",
        "`shutting_down`: The daemon is draining.",
    ]
    assert "Retry-After" in responses["503"]["headers"]
    assert "headers" not in responses["500"]


def test_an_answer_hides_the_error_of_its_status() -> None:
    answers = {503: json_answer("Not ready.", STRING)}
    operation = Operation(
        method="GET", path="/", name="A", summary="", answers=answers, errors=OF_MODELS, told=TOLD
    )
    responses = only(operation)["responses"]
    assert isinstance(responses, dict)
    assert responses["503"]["description"] == "Not ready."
