"""The OpenAI API, without Responses, as operations of an OpenAPI document.

`/v1/models` is here, too, although Anthropic clients get it in Anthropic's format.
"""

from ....shared.errors import ModelNotFound, RequestError
from ..anthropic.operations import ANTHROPIC_ERRORS
from ..common.answer_types import AnthropicModel, AnthropicModels, OpenAIModel, OpenAIModels
from ..openapi.bodies import Body
from ..openapi.document import (
    OF_MODELS,
    Answer,
    Errors,
    Operation,
    events_or,
    json_answer,
    parameter,
)
from . import answer_types
from .completions.requests import CHAT_BODY, COMPLETION_BODY
from .errors import error_fields
from .queries.embeddings import EMBEDDINGS_BODY
from .queries.rerank import RERANK_BODY


def _code(error: RequestError) -> str | None:
    return error_fields(error)["code"]


OPENAI_ERRORS = Errors(answer_types.OpenAIError, _code)

ANTHROPIC_VERSION = parameter("anthropic-version", "header")


def _post(path: str, name: str, summary: str, body: Body, answer: Answer) -> Operation:
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        body=body,
        answers={200: answer},
        errors=OF_MODELS,
        told=OPENAI_ERRORS,
    )


MODEL_ERRORS = Errors(OPENAI_ERRORS.form | ANTHROPIC_ERRORS.form, OPENAI_ERRORS.word)

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/models",
        name="Models",
        summary="The models that are served; in Anthropic's shape with `anthropic-version`.",
        parameters=(ANTHROPIC_VERSION,),
        answers={
            200: json_answer(
                "All known models.",
                OpenAIModels | AnthropicModels,
            )
        },
        told=MODEL_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/models/{name}",
        name="OneModel",
        summary="One model.",
        parameters=(parameter("name", "path", required=True), ANTHROPIC_VERSION),
        answers={200: json_answer("The model.", OpenAIModel | AnthropicModel)},
        errors=(ModelNotFound,),
        told=MODEL_ERRORS,
    ),
    _post(
        "/v1/chat/completions",
        "ChatCompletions",
        "OpenAI's chat completions.",
        CHAT_BODY,
        events_or(answer_types.ChatCompletion, "`[DONE]`", item=answer_types.ChatChunk),
    ),
    _post(
        "/v1/completions",
        "Completions",
        "OpenAI's completions.",
        COMPLETION_BODY,
        events_or(answer_types.Completion, "`[DONE]`", item=answer_types.CompletionChunk),
    ),
    _post(
        "/v1/embeddings",
        "Embeddings",
        "OpenAI's embeddings.",
        EMBEDDINGS_BODY,
        json_answer("A vector for each input.", answer_types.Embeddings),
    ),
    _post(
        "/v1/rerank",
        "Rerank",
        "Ranks documents by how well they answer a query.",
        RERANK_BODY,
        json_answer("The documents' scores, the best first.", answer_types.Ranking),
    ),
)
