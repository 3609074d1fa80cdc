"""Converts the bodies of `/api/chat` and `/api/generate` to neutral requests.

The types here define the supported fields. `fields` lists the fields that are ignored and
reported, or refused by name. A field with `null` counts as absent. Defaults of options are
llama.cpp's.

If a conversation ends with an assistant's message, the answer continues that message. As in
Ollama, a request without prompt or messages only checks that the model is served.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, TypeAdapter

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    ChatMessage,
    GenerateRequest,
    JsonSchemaGrammar,
    ToolList,
    TopLogprobs,
    can_go_on,
)
from ....shared.strict import STRICT
from ..common.request_checks import check_readable, check_tools
from ..fields.field_table import FieldNotes, FieldTable
from ..openai.completions.formats import ANY_OBJECT
from ..openai.completions.reasoning import reasoning_fields
from . import fields
from .conversation import Images, Messages, check_few, to_neutral, with_images
from .options import Json, Options

ModelName = Annotated[str, StringConstraints(min_length=1)]
Format = Literal["", "json"] | dict[str, Any]
Think = bool | Literal["low", "medium", "high", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OllamaBody:
    """The fields that both calls share."""

    __pydantic_config__ = STRICT

    model: ModelName
    stream: bool = True
    options: Options | None = None
    format: Format | None = None
    think: Think | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OllamaChatBody(_OllamaBody):
    messages: Messages = ()
    tools: ToolList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _GenerateBody(_OllamaBody):
    prompt: str = ""
    suffix: str | None = None
    system: str | None = None
    raw: bool = False
    images: Images | None = None


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A parsed body. `request` is `None` if there is nothing to answer."""

    model: str
    stream: bool
    request: GenerateRequest | None

    def request_for(self, model: str) -> GenerateRequest | None:
        """Return the request for the named model; `None` if there is nothing to answer."""
        return None if self.request is None else replace(self.request, model=model)


CHAT_FIELDS = FieldTable(TypeAdapter(_OllamaChatBody), fields.CHAT)
GENERATE_FIELDS = FieldTable(TypeAdapter(_GenerateBody), fields.GENERATE)


def parse_chat(body: bytes, notes: FieldNotes | None = None) -> OllamaRequest:
    """Parse the body of `/api/chat`. Raises `InvalidRequest` and `RequestTooLarge`."""
    parsed = CHAT_FIELDS.parsed(body, notes)
    messages = to_neutral(parsed.messages)
    check_few(messages)
    if not messages:
        return _requested(parsed, None)
    goes_on = can_go_on(messages)
    tools = parsed.tools or None
    check_tools(tools or ())
    return _requested(
        parsed, {"messages": messages, "tools": tools, "continue_final_message": goes_on}
    )


def parse_generate(body: bytes, notes: FieldNotes | None = None) -> OllamaRequest:
    """Parse the body of `/api/generate`. Raises `InvalidRequest` and `RequestTooLarge`."""
    parsed = GENERATE_FIELDS.parsed(body, notes)
    if parsed.raw and parsed.system:
        raise InvalidRequest("`system` cannot be combined with `raw`", field="system")
    if not (parsed.prompt or parsed.suffix or parsed.images):
        return _requested(parsed, None)
    if parsed.raw or parsed.suffix:
        if parsed.images:
            raise InvalidRequest(
                "`images` cannot be combined with `raw` or `suffix`", field="images"
            )
        return _requested(parsed, {"prompt": parsed.prompt, "suffix": parsed.suffix or None})
    system = [ChatMessage(role="system", content=parsed.system)] if parsed.system else []
    content = with_images(parsed.prompt, parsed.images or (), "images")
    user = ChatMessage(role="user", content=content)
    return _requested(parsed, {"messages": (*system, user)})


def _requested(parsed: _OllamaBody, asked: Json | None) -> OllamaRequest:
    """Return the parsed body with its request; `asked` has the neutral fields of the prompt."""
    if parsed.top_logprobs and not parsed.logprobs:
        raise InvalidRequest("`top_logprobs` needs `logprobs: true`", field="top_logprobs")
    if asked is None:
        return OllamaRequest(parsed.model, parsed.stream, None)
    request = GenerateRequest(
        **asked,
        **(parsed.options or Options()).neutral(),
        **_thinking(parsed.think),
        stream=parsed.stream,
        grammar=_grammar(parsed.format),
        logprobs=parsed.logprobs,
        top_logprobs=parsed.top_logprobs or None,
    )
    check_readable(request)
    return OllamaRequest(parsed.model, parsed.stream, request)


def _thinking(think: Think | None) -> Json:
    """Return the template variables for `think`.

    A word is the level, for templates that know levels.
    """
    if isinstance(think, str):
        return reasoning_fields(think)
    return {"thinking": think}


def _grammar(format: Format | None) -> JsonSchemaGrammar | None:
    if not format and not isinstance(format, dict):
        return None
    schema = ANY_OBJECT if format == "json" else format
    return JsonSchemaGrammar(type="json_schema", schema=dict(schema))
