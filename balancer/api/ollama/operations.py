"""Ollama's API as operations of an OpenAPI document."""

from ..openapi.bodies import Body
from ..openapi.document import (
    OF_MODELS,
    Answer,
    Errors,
    Operation,
    json_answer,
    streamed,
)
from ..openapi.schemas import STRING
from .answer_types import (
    OllamaChat,
    OllamaDescription,
    OllamaError,
    OllamaModels,
    OllamaRunningModels,
    OllamaText,
    OllamaVector,
    OllamaVectors,
    OllamaVersion,
)
from .embeddings import EMBED_BODY, EMBEDDINGS_BODY
from .models import SHOW_BODY
from .requests import CHAT_BODY, GENERATE_BODY

OLLAMA_ERRORS = Errors(OllamaError, lambda error: error.code)

_LINES = "Lines of JSON, the last of which has `done`; with `stream: false`, one object."


def _post(path: str, name: str, summary: str, body: Body, answer: Answer) -> Operation:
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        body=body,
        answers={200: answer},
        errors=OF_MODELS,
        told=OLLAMA_ERRORS,
    )


def _get(path: str, name: str, summary: str, answer: Answer) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        answers={200: answer},
        told=OLLAMA_ERRORS,
    )


OPERATIONS = (
    _get(
        "/",
        "OllamaGreeting",
        "Whether somebody is there, for Ollama's clients.",
        Answer("A sentence.", {"text/plain": {"schema": STRING}}),
    ),
    _get(
        "/api/version",
        "OllamaVersion",
        "The version of Ollama's API that is followed.",
        json_answer("The version.", OllamaVersion),
    ),
    _get(
        "/api/tags",
        "OllamaTags",
        "The models that are served, as Ollama lists them.",
        json_answer("All known models.", OllamaModels),
    ),
    _get(
        "/api/ps",
        "OllamaPs",
        "The models that are loaded, as Ollama lists them.",
        json_answer("All loaded models.", OllamaRunningModels),
    ),
    _post(
        "/api/show",
        "OllamaShow",
        "One model, as Ollama describes it.",
        SHOW_BODY,
        json_answer("The model.", OllamaDescription),
    ),
    _post(
        "/api/chat",
        "OllamaChat",
        "Ollama's chat.",
        CHAT_BODY,
        streamed(_LINES, OllamaChat, "application/x-ndjson", item=OllamaChat),
    ),
    _post(
        "/api/generate",
        "OllamaGenerate",
        "Ollama's completion of a prompt.",
        GENERATE_BODY,
        streamed(_LINES, OllamaText, "application/x-ndjson", item=OllamaText),
    ),
    _post(
        "/api/embed",
        "OllamaEmbed",
        "Ollama's embeddings.",
        EMBED_BODY,
        json_answer("A vector for each input.", OllamaVectors),
    ),
    _post(
        "/api/embeddings",
        "OllamaEmbeddings",
        "Ollama's older call for one embedding.",
        EMBEDDINGS_BODY,
        json_answer("The vector.", OllamaVector),
    ),
)
