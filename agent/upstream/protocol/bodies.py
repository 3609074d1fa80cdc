"""Converts neutral requests to bodies for an OpenAI-compatible server.

Fields that OpenAI does not have are sent under the names of the server's dialect. Balancers choose
servers by ability; the abilities are checked here again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....shared.inference import (
    AudioPart,
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    ImagePart,
    JsonSchemaGrammar,
    LarkGrammar,
    MediaPart,
    NamedTool,
    RegexGrammar,
    TextPart,
    arguments_text,
    in_words,
)
from ....shared.inference.abilities import Ability, lacking
from ....shared.sampling import SAMPLERS, chosen
from .dialects import Dialect

Json = dict[str, Any]

CHAT = "/chat/completions"
TEXT = "/completions"

_STANDARD = ("seed", "suffix", *(name for name, each in SAMPLERS.items() if each.is_standard))
"""Fields with the same name at all servers and here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The properties of a server: its `dialect`, its name for the model, its abilities.

    `counts_at_end`: the server supports `stream_options`. `renamed` are fields with another name
    than at most servers, such as `max_completion_tokens`. `refused` are fields that the server
    always refuses. `embeds`: the server makes embeddings.
    """

    dialect: Dialect
    model: str
    abilities: frozenset[Ability] = frozenset()
    counts_at_end: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    embeds: bool = False


def path_of(request: GenerateRequest) -> str:
    """Return the path that answers `request`, relative to the API's address."""
    return CHAT if request.messages is not None else TEXT


def body_of(request: GenerateRequest, server: Server) -> Json:
    """Return the body for `path_of(request)`. Raises a `NotSupported` that names the field."""
    if error := lacking(
        request, server.abilities, f"the upstream server of `{server.model}` cannot"
    ):
        raise error
    body: Json = {"model": server.model, "stream": True}
    if server.counts_at_end:
        counting = {"continuous_usage_stats": True} if server.dialect.is_counting else {}
        body["stream_options"] = {"include_usage": True, **counting}
    body |= _chat(request, server) if request.messages is not None else _text(request)
    body |= dict(_shared(request, server.dialect))
    for name in ("max_tokens", "truncate_prompt_tokens"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    return _adapted(body, server)


def _adapted(body: Json, server: Server) -> Json:
    names = dict(server.renamed)
    kept = {name: value for name, value in body.items() if name not in server.refused}
    return {names.get(name, name): value for name, value in kept.items()}


def _chat(request: GenerateRequest, server: Server) -> Json:
    messages = request.messages or ()
    body: Json = {"messages": [_message(each, server) for each in messages]}
    if request.tools and request.tool_choice != "none":
        body["tools"] = list(request.tools)
        if request.tool_choice not in (None, "auto"):
            body["tool_choice"] = _choice(request.tool_choice)
        if request.parallel_tool_calls is False:
            body["parallel_tool_calls"] = False
    if request.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    return body | _template(request, server.dialect)


def _text(request: GenerateRequest) -> Json:
    prompt = request.prompt
    body: Json = {"prompt": prompt if isinstance(prompt, str) else list(prompt or ())}
    if request.logprobs:
        body["logprobs"] = request.top_logprobs or 0
    if request.max_tokens is None:
        body["max_tokens"] = None  # of several servers the default is 16
    return body


def _message(message: ChatMessage, server: Server) -> Json:
    role = "system" if message.role == "developer" else message.role
    body: Json = {"role": role, "content": _content(message, server)}
    for name in ("name", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            body[name] = value
    if message.tool_calls:
        body["tool_calls"] = [_call(each) for each in message.tool_calls]
    if message.reasoning_content is not None and server.dialect.has_template:
        body["reasoning_content"] = message.reasoning_content
    return body


def _call(call: Mapping[str, Any]) -> Json:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return dict(call)
    arguments = arguments_text(function.get("arguments"))
    return {**call, "function": {**function, "arguments": arguments}}


def _content(message: ChatMessage, server: Server) -> str | list[Json]:
    """Return the text of a message, or its parts in order if it has media.

    If the server does not accept pictures, a tool's result is text only.
    """
    if not message.media or not isinstance(message.content, tuple):
        return message.text
    if message.role == "tool" and "vision" not in server.abilities:
        return message.text_with(in_words)
    return [_part(part) for part in message.content]


def _part(part: TextPart | MediaPart) -> Json:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(image_url=image):
            return {"type": "image_url", "image_url": {"url": image.url}}
        case AudioPart(input_audio=audio):
            sound = {"data": audio.data, "format": audio.format}
            return {"type": "input_audio", "input_audio": sound}


def _choice(choice: str | NamedTool | None) -> str | Json | None:
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _template(request: GenerateRequest, dialect: Dialect) -> Json:
    variables = dict(request.chat_template_kwargs or {})
    if request.thinking is not None:
        variables |= {"enable_thinking": request.thinking, "thinking": request.thinking}
    body: Json = {"chat_template_kwargs": variables} if variables else {}
    if request.continue_final_message:
        body |= dict(dialect.continues)
    return body if request.add_generation_prompt else body | {"add_generation_prompt": False}


def _shared(request: GenerateRequest, dialect: Dialect) -> Iterator[tuple[str, Any]]:
    for name in _STANDARD:
        value = getattr(request, name)
        if value is not None and value != ():
            yield name, list(value) if isinstance(value, tuple) else value
    said = chosen(request)
    if said.get("top_k") == 0:
        said["top_k"] = dialect.all_tokens
    for name, called in dialect.sampling.items():
        if (value := said.get(name)) is not None and value != ():
            yield called, list(value) if isinstance(value, tuple) else value
    yield from _grammar(request, dialect)


def _grammar(request: GenerateRequest, dialect: Dialect) -> Iterator[tuple[str, Any]]:
    match request.grammar:
        case JsonSchemaGrammar(schema=schema, strict=strict):
            named = {"name": "answer", "schema": schema, "strict": strict}
            yield "response_format", {"type": "json_schema", "json_schema": named}
        case RegexGrammar(pattern=pattern):
            yield _given(dialect.regex or "regex", "regex", pattern)
        case GbnfGrammar(grammar=grammar):
            yield _given(dialect.gbnf or "grammar", "grammar", grammar)
        case LarkGrammar(grammar=grammar):
            yield _given(dialect.lark or "grammar", "grammar", grammar)
        case _:
            pass


def _given(field: str, kind: str, value: str) -> tuple[str, Any]:
    return (field, {kind: value}) if field == "structured_outputs" else (field, value)
