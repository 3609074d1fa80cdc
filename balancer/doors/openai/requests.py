"""OpenAI's bodies to neutral requests; what cannot be served is refused by name.

`null` means what leaving a field out means. These hints are taken and ignored: `IGNORED`. What
changes the answer and is not to be had is refused with the field as `param`, unless its value asks
for nothing (`"logprobs": false`). Beyond OpenAI's there are llama.cpp's `top_k`, `min_p`,
`repeat_penalty`, `ignore_eos`, and `chat_template_kwargs: {"enable_thinking": bool}`.

Of `tool_choice` there are `"auto"` and `"none"`.

Without `max_tokens` an answer may go on to the context's ceiling, on `/v1/completions` too; other
defaults are llama.cpp's. Of `n` choices, choice i draws with `seed + i`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import to_json

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    MAX_STOP_STRINGS,
    GenerateRequest,
    LogitBias,
    MaxTokens,
    Messages,
    MinP,
    RepeatPenalty,
    StopString,
    Temperature,
    TokenPenalty,
    ToolChoice,
    TopK,
    TopP,
)
from ....shared.validation import parse_json
from ..given import fields_given

MAX_CHOICES = 128
"""Largest `n`, and largest number of choices over all prompts of one request."""

IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# Each with the values, as JSON, that are let through; but for `_SERVED` they ask for nothing.
_REFUSED_IN_CHAT: Mapping[str, frozenset[bytes]] = {
    "audio": frozenset(),
    "function_call": frozenset(),
    "functions": frozenset(),
    "logprobs": frozenset({b"false"}),
    "modalities": frozenset({b'["text"]'}),
    "parallel_tool_calls": frozenset({b"true"}),
    "prediction": frozenset(),
    "reasoning_effort": frozenset(),
    "response_format": frozenset({b'{"type":"text"}'}),
    "tool_choice": frozenset({b'"auto"', b'"none"'}),
    "top_logprobs": frozenset({b"0"}),
    "verbosity": frozenset(),
    "web_search_options": frozenset(),
}
_REFUSED_IN_COMPLETIONS: Mapping[str, frozenset[bytes]] = {
    "best_of": frozenset({b"1"}),
    "echo": frozenset({b"false"}),
    "logprobs": frozenset(),
    "suffix": frozenset({b'""'}),
}

_SERVED = frozenset({"tool_choice"})

_STRICT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamOptions:
    __pydantic_config__ = _STRICT

    include_usage: bool = False
    include_obfuscation: bool = False  # a hint, ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class _TemplateOptions:
    __pydantic_config__ = _STRICT

    enable_thinking: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """What both endpoints take."""

    __pydantic_config__ = _STRICT

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repeat_penalty: RepeatPenalty | None = None
    presence_penalty: TokenPenalty | None = None
    frequency_penalty: TokenPenalty | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    logit_bias: LogitBias | None = None
    stop: Annotated[tuple[StopString, ...], Field(max_length=MAX_STOP_STRINGS)] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatBody(_Body):
    messages: Messages
    max_completion_tokens: MaxTokens | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: ToolChoice | None = None
    chat_template_kwargs: _TemplateOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionBody(_Body):
    prompt: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_CHOICES)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one body asks for: a choice for each request, `num_choices` in a row for a prompt."""

    requests: tuple[GenerateRequest, ...]
    num_choices: int
    model: str | None
    stream: bool
    include_usage: bool


_chat = TypeAdapter(_ChatBody)
_completion = TypeAdapter(_CompletionBody)


def parse_chat(body: bytes) -> Wanted:
    """The body of `/v1/chat/completions`. Raises `InvalidRequest`."""
    raw = _given(body, _REFUSED_IN_CHAT)
    if "messages" in raw:
        raw["messages"] = _plain_messages(raw["messages"])
    parsed = parse_json(_chat, to_json(raw))
    if parsed.max_tokens is not None and parsed.max_completion_tokens is not None:
        raise InvalidRequest(
            "give only one of `max_tokens` and `max_completion_tokens`", field="max_tokens"
        )
    options = parsed.chat_template_kwargs
    conversation = {
        "messages": parsed.messages,
        "tools": parsed.tools or None,
        "tool_choice": parsed.tool_choice,
        "thinking": options.enable_thinking if options else None,
        "max_tokens": parsed.max_completion_tokens or parsed.max_tokens,
    }
    return _wanted(parsed, [conversation])


def parse_completion(body: bytes) -> Wanted:
    """The body of `/v1/completions`. Raises `InvalidRequest`."""
    raw = _given(body, _REFUSED_IN_COMPLETIONS)
    if "prompt" in raw:
        raw["prompt"] = _prompts(raw["prompt"])
    parsed = parse_json(_completion, to_json(raw))
    if parsed.n * len(parsed.prompt) > MAX_CHOICES:
        raise InvalidRequest(
            f"`n` times the number of prompts may be at most {MAX_CHOICES}", field="n"
        )
    return _wanted(
        parsed,
        [{"prompt": prompt, "max_tokens": parsed.max_tokens} for prompt in parsed.prompt],
    )


def _given(body: bytes, refused: Mapping[str, frozenset[bytes]]) -> dict[str, Any]:
    given = fields_given(body, refused=refused, ignored=IGNORED, served=_SERVED)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    return given


def _prompts(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and any(isinstance(item, int | list) for item in value):
        raise InvalidRequest("prompts of token ids are not supported; send text", field="prompt")
    return value


def _plain_messages(value: object) -> object:
    """Messages as clients echo them from answers, without the members that say nothing."""
    if not isinstance(value, list):
        return value
    return [_plain_message(number, message) for number, message in enumerate(value)]


def _plain_message(number: int, message: object) -> object:
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    for position, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind != "text":
            field = f"messages[{number}].content[{position}].type"
            raise InvalidRequest(
                f"`{field}`: only text is supported, not {str(kind)[:60]!r}", field=field
            )
    return {
        name: value
        for name, value in message.items()
        if value is not None and name != "annotations"
    }


def _wanted(parsed: _Body, prompts: list[dict[str, Any]]) -> Wanted:
    if parsed.stream_options is not None and not parsed.stream:
        raise InvalidRequest("`stream_options` is only for `stream: true`", field="stream_options")
    return Wanted(
        requests=tuple(
            _neutral(parsed, prompt, choice) for prompt in prompts for choice in range(parsed.n)
        ),
        num_choices=parsed.n,
        model=parsed.model,
        stream=parsed.stream,
        include_usage=parsed.stream_options is not None and parsed.stream_options.include_usage,
    )


def _neutral(parsed: _Body, prompt: dict[str, Any], choice: int) -> GenerateRequest:
    return GenerateRequest(
        **prompt,
        model=parsed.model,
        stream=parsed.stream,
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        min_p=parsed.min_p,
        repeat_penalty=parsed.repeat_penalty,
        presence_penalty=parsed.presence_penalty,
        frequency_penalty=parsed.frequency_penalty,
        seed=None if parsed.seed is None else (parsed.seed + choice) % 2**32,
        logit_bias=parsed.logit_bias,
        stop=parsed.stop,
        ignore_eos=parsed.ignore_eos,
    )
