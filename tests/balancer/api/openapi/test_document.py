"""Operations to a document: what it says of parameters, answers and errors."""

from arriero.balancer.api.openapi.document import (
    OF_MODELS,
    AnswerDoc,
    Doc,
    Operation,
    document,
    json_answer,
    parameter,
)
from arriero.balancer.api.openapi.schemas import STRING
from arriero.shared.errors import NotFound, QueueFull, ShuttingDown


def only(path: str, doc: Doc, *, is_keyless: bool = False) -> dict[str, object]:
    operation = Operation("GET", path, doc, is_keyless)
    made = document(title="A", version="1", operations=[operation])
    assert made["openapi"] == "3.1.0"
    assert made["info"] == {"title": "A", "version": "1"}
    schemas = {"ErrorAnswer", "PublicError", "FieldProblem"}
    assert made["components"]["schemas"].keys() == schemas
    found: dict[str, object] = made["paths"][path]["get"]
    return found


def test_an_operation() -> None:
    doc = Doc(
        "OneThing",
        "A thing.",
        {200: json_answer("It.", STRING), 204: AnswerDoc("Nothing.")},
        parameters=(parameter("after", "query"),),
        errors=(NotFound,),
    )
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    assert only("/things/{id}", doc) == {
        "operationId": "OneThing",
        "summary": "A thing.",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": STRING},
            {"name": "after", "in": "query", "required": False, "schema": STRING},
        ],
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
                "description": "`not_found`: The path, agent or request does not exist.",
                "content": error,
            },
            "500": {
                "description": "`internal_error`: A fault in Arriero; its log has the details.",
                "content": error,
            },
        },
    }


def test_what_needs_no_key_says_so() -> None:
    assert only("/", Doc("A", "", {}), is_keyless=True)["security"] == []
    assert "security" not in only("/", Doc("A", "", {}))


def test_errors_of_one_status_are_one_answer() -> None:
    doc = Doc("A", "", {}, errors=(QueueFull, ShuttingDown, QueueFull))
    responses = only("/", doc)["responses"]
    assert isinstance(responses, dict)
    assert responses["503"]["description"].splitlines() == [
        "`queue_full`: The queue is full.",
        "`shutting_down`: The daemon drains before it stops.",
    ]
    assert "Retry-After" in responses["503"]["headers"]
    assert "headers" not in responses["500"]


def test_an_answer_hides_the_error_of_its_status() -> None:
    doc = Doc("A", "", {503: json_answer("Not ready.", STRING)}, errors=OF_MODELS)
    responses = only("/", doc)["responses"]
    assert isinstance(responses, dict)
    assert responses["503"]["description"] == "Not ready."
