"""The OpenAI API, but for Responses, as operations of an OpenAPI document.

`/v1/models` is here, too, though it has an Anthropic's shape for those who ask for it.
"""

from ....shared.errors import ModelNotFound, RequestError
from ..anthropic.operations import ANTHROPIC_ERRORS
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
from ..openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    either,
    listing,
    mapping,
    nullable,
    one_of,
    record,
    ref,
)
from .embeddings import EMBEDDINGS_BODY
from .errors import error_fields
from .requests import CHAT_BODY, COMPLETION_BODY
from .rerank import RERANK_BODY


def _code(error: RequestError) -> str | None:
    return error_fields(error)["code"]


OPENAI_ERRORS = Errors(
    "OpenAIError",
    record(
        {
            "error": record(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": nullable(STRING),
                    "code": nullable(STRING),
                }
            )
        }
    ),
    _code,
)

_CALL = record(
    {
        "id": STRING,
        "type": one_of("function"),
        "function": record({"name": STRING, "arguments": STRING}),
    }
)
_MESSAGE = record(
    {"role": one_of("assistant"), "content": nullable(STRING), "refusal": nullable(STRING)},
    {"reasoning_content": STRING, "tool_calls": listing(_CALL)},
)
_CHAT_LOG_PROBS = record({"content": listing(ref("LogProb")), "refusal": nullable(STRING)})
_COMPLETION_LOG_PROBS = record(
    {
        "tokens": listing(STRING),
        "token_logprobs": listing(nullable(NUMBER)),
        "top_logprobs": listing(nullable(mapping(NUMBER))),
        "text_offset": listing(COUNT),
    }
)
_USAGE = record(
    {
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": COUNT,
        "prompt_tokens_details": record({"cached_tokens": COUNT}),
        "completion_tokens_details": record({"reasoning_tokens": COUNT}),
    }
)
_QUERY_USAGE = record({"prompt_tokens": COUNT, "total_tokens": COUNT})


def _whole(object_name: str, reasons: Schema, choice: dict[str, Schema]) -> Schema:
    return record(
        {
            "id": STRING,
            "object": one_of(object_name),
            "created": INTEGER,
            "model": STRING,
            "choices": listing(record({"index": COUNT, **choice, "finish_reason": reasons})),
            "usage": ref("OpenAIUsage"),
        }
    )


COMPONENTS: dict[str, Schema] = {
    "OpenAIUsage": _USAGE,
    "ChatCompletion": _whole(
        "chat.completion",
        one_of("stop", "length", "tool_calls"),
        {"message": _MESSAGE, "logprobs": nullable(_CHAT_LOG_PROBS)},
    ),
    "Completion": _whole(
        "text_completion",
        one_of("stop", "length"),
        {"text": STRING, "logprobs": nullable(_COMPLETION_LOG_PROBS)},
    ),
    "Model": record(
        {
            "id": STRING,
            "object": one_of("model"),
            "created": INTEGER,
            "owned_by": STRING,
            "tasks": listing(one_of("generate", "embed", "rank")),
        }
    ),
    "AnthropicModel": record(
        {
            "id": STRING,
            "type": one_of("model"),
            "display_name": STRING,
            "created_at": STRING,
            "lifecycle": STRING,
            "max_input_tokens": COUNT,
        }
    ),
    "AnthropicModels": record(
        {
            "data": listing(ref("AnthropicModel")),
            "has_more": BOOLEAN,
            "first_id": nullable(STRING),
            "last_id": nullable(STRING),
        }
    ),
    "Embeddings": record(
        {
            "object": one_of("list"),
            "data": listing(
                record(
                    {
                        "object": one_of("embedding"),
                        "index": COUNT,
                        "embedding": either(listing(NUMBER), STRING),
                    }
                )
            ),
            "model": STRING,
            "usage": _QUERY_USAGE,
        }
    ),
    "Ranking": record(
        {
            "id": STRING,
            "object": one_of("list"),
            "model": STRING,
            "results": listing(
                record(
                    {"index": COUNT, "relevance_score": NUMBER},
                    {"document": record({"text": STRING})},
                )
            ),
            "usage": _QUERY_USAGE,
        }
    ),
}

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


MODEL_ERRORS = Errors(
    "ModelError", either(ref(OPENAI_ERRORS.name), ref(ANTHROPIC_ERRORS.name)), OPENAI_ERRORS.word
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/models",
        name="Models",
        summary="The models that are served; in Anthropic's shape with `anthropic-version`.",
        parameters=(ANTHROPIC_VERSION,),
        answers={
            200: json_answer(
                "All of them.",
                either(
                    record({"object": one_of("list"), "data": listing(ref("Model"))}),
                    ref("AnthropicModels"),
                ),
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
        answers={200: json_answer("It.", either(ref("Model"), ref("AnthropicModel")))},
        errors=(ModelNotFound,),
        told=MODEL_ERRORS,
    ),
    _post(
        "/v1/chat/completions",
        "ChatCompletions",
        "OpenAI's chat completions.",
        CHAT_BODY,
        events_or("ChatCompletion", "`[DONE]`"),
    ),
    _post(
        "/v1/completions",
        "Completions",
        "OpenAI's completions.",
        COMPLETION_BODY,
        events_or("Completion", "`[DONE]`"),
    ),
    _post(
        "/v1/embeddings",
        "Embeddings",
        "OpenAI's embeddings.",
        EMBEDDINGS_BODY,
        json_answer("A vector for each input.", ref("Embeddings")),
    ),
    _post(
        "/v1/rerank",
        "Rerank",
        "Ranks documents by how well they answer a query.",
        RERANK_BODY,
        json_answer("The documents' scores, the best first.", ref("Ranking")),
    ),
)
