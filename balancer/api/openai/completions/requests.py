"""Converts requests of OpenAI's completion APIs to neutral requests.

The types in this module define the supported fields. `fields` lists the fields that are ignored
with a report, and the fields that are refused with their name as `param`. A field with the value
`null` counts as absent.

Extensions are llama.cpp's sampling options, such as `top_k`, `min_p` and `ignore_eos`, and vLLM's
`chat_template_kwargs`, `add_generation_prompt` and `continue_final_message`. A client may give an
output format as `grammar`, like in the native API, or in the notation of vLLM, SGLang and
llama-server (`extras`). `functions` is OpenAI's old form of tools.

If `max_tokens` is absent or -1, an answer may fill the rest of the context, on `/v1/completions`
too. All other defaults are llama.cpp's. If `n` is given, choice i uses the seed `seed + i`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.inference import (
    TO_GO_ON,
    GenerateRequest,
    Grammar,
    MaxTokens,
    Messages,
    PromptCacheKey,
    PromptInput,
    ServiceTier,
    ToolList,
    TopLogprobs,
    can_go_on,
    priority_of_tier,
)
from .....shared.strict import LAZY, STRICT, ListOf
from .....shared.template_variables import TemplateVariables
from .....shared.validation import parse_json
from ...common.body_fields import SAME_NAMES, FieldNames, in_list, parse_named
from ...common.request_checks import check_copies, check_messages, check_readable, check_tools
from ...fields.field_table import FieldNotes, FieldTable
from .. import fields
from .extras import ServerExtras, either, neutral_seed, plain_extras, the_only
from .formats import (
    FORMAT_NAMES,
    OBJECT_NAMES,
    AllowedChoice,
    Choice,
    JsonObjectFormat,
    ResponseFormat,
    neutral_choice,
)
from .reasoning import FIELDS as REASONING
from .reasoning import Switches, Verbosity, reasoning_fields, with_reasoning

MAX_CHOICES = 128
"""Maximum `n`, and maximum choices over all prompts of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamOptions:
    __pydantic_config__ = STRICT

    include_usage: bool = False
    continuous_usage_stats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionsBody(ServerExtras):
    """The fields that both endpoints share."""

    __pydantic_config__ = STRICT

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    stream: bool = False
    stream_options: _StreamOptions | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: PromptCacheKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatBody(_CompletionsBody, Switches):
    messages: Messages
    max_tokens: MaxTokens | Literal[-1] | None = None
    max_completion_tokens: MaxTokens | Literal[-1] | None = None
    tools: ToolList | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: TemplateVariables | None = None
    verbosity: Verbosity | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionBody(_CompletionsBody):
    prompt: Annotated[ListOf[PromptInput], Field(min_length=1, max_length=MAX_CHOICES)]
    max_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    logprobs: TopLogprobs | None = None
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None


@dataclass(frozen=True, slots=True)
class CompletionsRequest:
    """A parsed body: one request per choice, `num_choices` consecutive ones for each prompt.

    If prompts are echoed and agents do not send them, `echoes` are the prompts with which the
    choices begin. Errors name fields by `field_names`.
    """

    requests: tuple[GenerateRequest, ...]
    num_choices: int
    model: str | None
    stream: bool
    include_usage: bool
    echoes: tuple[str, ...] = ()
    field_names: FieldNames = SAME_NAMES
    has_running_usage: bool = False
    tells_progress: bool = False
    has_functions: bool = False
    """Whether an answer's call has the older form of a function call."""

    @property
    def has_log_probs(self) -> bool:
        """Whether the request asks for log-probabilities."""
        return self.requests[0].logprobs

    @property
    def generates(self) -> bool:
        """Whether the answer has any generated tokens."""
        return not self.requests[0].prefill_only


_chat = TypeAdapter(_ChatBody)
_completion = TypeAdapter(_CompletionBody)
_one_prompt: TypeAdapter[PromptInput] = TypeAdapter(PromptInput, config=LAZY)

_FUNCTIONS = ("functions", "function_call", "messages[].function_call", "messages[].role=function")
"""Fields of OpenAI's older functions, which become tools."""

_FUNCTION_NAMES = {
    "tools[].function": "functions[]",
    "tools": "functions",
    "tool_choice": "function_call",
    "messages[].tool_calls": "messages[].function_call",
}
"""Names of the fields of tools in a body with functions."""

CHAT_FIELDS = FieldTable(
    _chat, fields.CHAT, kinds=fields.CHAT_KINDS, prepared=(*_FUNCTIONS, *REASONING)
)
COMPLETION_FIELDS = FieldTable(_completion, fields.COMPLETION)


def parse_chat(body: bytes, notes: FieldNotes | None = None) -> CompletionsRequest:
    """Parse the body of `/v1/chat/completions`. Raises `InvalidRequest` and `RequestTooLarge`."""
    has_functions = False

    def prepare(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal has_functions
        given, has_functions = _with_tools(plain_extras(given))
        if isinstance(messages := given.get("messages"), list):
            given["messages"] = [
                with_reasoning(each) if isinstance(each, dict) else each for each in messages
            ]
        return given

    raw = CHAT_FIELDS.given(body, notes, prepare=prepare)
    if "messages" in raw:
        raw["messages"] = _plain_messages(raw["messages"])
    plain = to_json(raw)
    parsed = parse_json(_chat, plain)
    check_messages(parsed.messages)
    own = FieldNames(_FUNCTION_NAMES if has_functions else {})
    check_tools(parsed.tools or (), own)
    check_copies(parsed.n * len(plain), field="n")
    if parsed.top_logprobs and not parsed.logprobs:
        raise InvalidRequest("`top_logprobs` needs `logprobs: true`", field="top_logprobs")
    if parsed.continue_final_message and not can_go_on(parsed.messages):
        raise InvalidRequest(f"`continue_final_message` {TO_GO_ON}", field="continue_final_message")
    found = _grammars(parsed, parsed.response_format)
    conversation = {
        "messages": parsed.messages,
        "tools": _allowed(parsed) or None,
        "tool_choice": neutral_choice(parsed.tool_choice),
        "parallel_tool_calls": parsed.parallel_tool_calls,
        "grammar": the_only(found),
        **reasoning_fields(
            parsed.effort,
            parsed.chat_template_kwargs,
            is_on=parsed.is_on,
            verbosity=parsed.verbosity,
        ),
        "add_generation_prompt": parsed.add_generation_prompt,
        "continue_final_message": parsed.continue_final_message,
        "max_tokens": _most_tokens(parsed),
        "logprobs": parsed.logprobs,
        "top_logprobs": parsed.top_logprobs or None,
    }
    names = parsed.names(found, _format_names(parsed.response_format))
    if parsed.max_completion_tokens is not None:
        names = names.also(_COMPLETION_TOKENS)
    if has_functions:
        names = names.also(_FUNCTION_NAMES)
    return _requested(parsed, [conversation], names, has_functions=has_functions)


_COMPLETION_TOKENS = {"max_tokens": "max_completion_tokens"}


def _format_names(answer: ResponseFormat | None) -> FieldNames:
    if answer is None or answer.grammar() is None:
        return SAME_NAMES
    return OBJECT_NAMES if isinstance(answer, JsonObjectFormat) else FORMAT_NAMES


def _most_tokens(parsed: _ChatBody | _CompletionBody) -> int | None:
    """Return the maximum tokens of an answer. Raises `InvalidRequest` if two fields limit it."""
    names = ("max_tokens", "max_completion_tokens", "n_predict")
    given = [(name, getattr(parsed, name)) for name in names]
    first, most = None, None
    for name, value in given:
        if value in (None, -1):
            continue
        if first is not None and value != most:
            raise InvalidRequest(f"give only one of `{first}` and `{name}`", field=first)
        first, most = first or name, value
    return most


def _allowed(parsed: _ChatBody) -> Sequence[dict[str, Any]]:
    """Return the tools that the model may call. Raises `InvalidRequest`."""
    tools, choice = parsed.tools or (), parsed.tool_choice
    return choice.allowed_tools.among(tools) if isinstance(choice, AllowedChoice) else tools


def _grammars(
    parsed: _CompletionsBody, answer: ResponseFormat | None = None
) -> list[tuple[str, Grammar]]:
    """Return the grammars that the answer must match, by field."""
    grammar = answer.grammar() if answer else None
    found = [] if grammar is None else [("response_format", grammar)]
    return [*found, *parsed.grammars()]


def parse_completion(body: bytes, notes: FieldNotes | None = None) -> CompletionsRequest:
    """Parse the body of `/v1/completions`. Raises `InvalidRequest` and `RequestTooLarge`."""
    raw = COMPLETION_FIELDS.given(body, notes, prepare=plain_extras)
    names = in_list(raw, "prompt")
    prompts = to_json(raw.pop("prompt", None))
    common_fields = to_json(raw)
    parsed = parse_named(_completion, _with_prompts(common_fields, prompts), names)
    if parsed.n * len(parsed.prompt) > MAX_CHOICES:
        raise InvalidRequest(
            f"`n` times the number of prompts must be at most {MAX_CHOICES}", field="n"
        )
    num_bytes = len(prompts) + len(parsed.prompt) * len(common_fields)
    check_copies(parsed.n * num_bytes, field="n")
    _check_completion(parsed)
    most = _most_tokens(parsed)
    found = _grammars(parsed)
    is_scored = parsed.echo and parsed.logprobs is not None
    common = {
        "max_tokens": most or None,
        "prefill_only": most == 0,
        "prompt_logprobs": is_scored,
        "grammar": the_only(found),
        "suffix": parsed.suffix or None,
        "logprobs": parsed.logprobs is not None,
        "top_logprobs": parsed.logprobs or None,
    }
    names = parsed.names(found, SAME_NAMES)
    if parsed.max_completion_tokens is not None:
        names = names.also(_COMPLETION_TOKENS)
    prompts_with_fields = [{"prompt": prompt, **common} for prompt in parsed.prompt]
    requested = _requested(parsed, prompts_with_fields, names)
    if not parsed.echo or is_scored:
        return requested
    return replace(requested, echoes=_texts(requested.requests))


def _with_prompts(fields: bytes, prompts: bytes) -> bytes:
    """Return the JSON object `fields` with a member `prompt`, unless the prompt is null."""
    if prompts == b"null":
        return fields
    return b'{"prompt":%b%b' % (prompts, b"," + fields[1:] if len(fields) > 2 else b"}")


def _texts(requests: tuple[GenerateRequest, ...]) -> tuple[str, ...]:
    texts = tuple(request.prompt for request in requests if isinstance(request.prompt, str))
    if len(texts) < len(requests):
        raise InvalidRequest(
            "`echo` of a prompt of token ids needs `logprobs`, because the balancer does "
            "not know the text of the prompt",
            field="echo",
        )
    return texts


def _check_completion(parsed: _CompletionBody) -> None:
    """Refuse values of OpenAI's fields that are not supported. Raises `InvalidRequest`."""
    if parsed.best_of not in (None, parsed.n):
        raise InvalidRequest(
            "`best_of` is not supported unless it equals `n`; leave it out",
            field="best_of",
        )
    if parsed.echo and parsed.truncate_prompt_tokens is not None:
        raise InvalidRequest(
            "`echo` is not supported with `truncate_prompt_tokens`; leave one of them out",
            field="echo",
        )
    if parsed.suffix and parsed.echo and parsed.logprobs is not None:
        raise InvalidRequest(
            "`echo` with `logprobs` is not supported with `suffix`; leave one of them out",
            field="echo",
        )


def _plain_messages(value: object) -> object:
    """Return messages without empty members, which clients copy from answers."""
    if not isinstance(value, list):
        return value
    return [_plain_message(message) for message in value]


def _plain_message(message: object) -> object:
    if not isinstance(message, dict):
        return message
    return {
        name: value
        for name, value in message.items()
        if value is not None and (name == "content" or value not in ([], {}))
    }


def _requested(
    parsed: _CompletionsBody,
    prompts: list[dict[str, Any]],
    names: FieldNames,
    *,
    has_functions: bool = False,
) -> CompletionsRequest:
    if parsed.stream_options is not None and not parsed.stream:
        raise InvalidRequest("`stream_options` needs `stream: true`", field="stream_options")
    options = parsed.stream_options or _StreamOptions()
    requests = [[_neutral(parsed, prompt, n) for n in range(parsed.n)] for prompt in prompts]
    check_readable(requests[0][0])  # the others differ in their seeds and prompts only
    return CompletionsRequest(
        requests=tuple(chain.from_iterable(requests)),
        num_choices=parsed.n,
        model=parsed.model,
        stream=parsed.stream,
        include_usage=options.include_usage,
        field_names=names,
        has_functions=has_functions,
        has_running_usage=options.continuous_usage_stats,
        tells_progress=parsed.return_progress,
    )


def _neutral(parsed: _CompletionsBody, prompt: dict[str, Any], choice: int) -> GenerateRequest:
    penalties = ("repeat_penalty", parsed.repeat_penalty)
    fields = parsed.neutral()
    fields["repeat_penalty"] = either(*penalties, "repetition_penalty", parsed.repetition_penalty)
    return GenerateRequest(
        **prompt,
        model=parsed.model,
        stream=parsed.stream,
        seed=neutral_seed(parsed.seed, choice),
        priority=priority_of_tier(parsed.service_tier),
        prompt_cache_key=parsed.prompt_cache_key,
        **fields,
    )


# ---- OpenAI's older functions


def _with_tools(body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return `body` with tools in place of functions, and whether it had functions.

    A function's result names the function, not the call, but chat templates need the id of the
    call. So calls get ids, and results are matched to calls by name. Raises `InvalidRequest`.
    """
    functions, choice = body.get("functions"), body.get("function_call")
    given = {name: value for name, value in body.items() if name not in _FUNCTIONS}
    if isinstance(messages := body.get("messages"), list):
        given["messages"] = _with_tool_calls(messages)
    if choice is not None and not functions:
        raise InvalidRequest("`function_call` needs `functions`", field="function_call")
    if not functions:
        return given, False
    if taken := next((name for name in ("tools", "tool_choice") if name in body), None):
        raise InvalidRequest(f"give only one of `functions` and `{taken}`", field="functions")
    if not isinstance(functions, list):
        raise InvalidRequest("`functions` must be a list", field="functions")
    given["tools"] = [{"type": "function", "function": each} for each in functions]
    given["parallel_tool_calls"] = False
    if choice is not None:
        given["tool_choice"] = _choice_of(choice)
    return given, True


def _choice_of(choice: object) -> object:
    match choice:
        case "none" | "auto":
            return choice
        case {"name": str()}:
            return {"type": "function", "function": choice}
        case _:
            raise InvalidRequest(
                "`function_call` must be 'none', 'auto' or an object with a `name`",
                field="function_call",
            )


def _with_tool_calls(messages: list[Any]) -> list[Any]:
    ids: dict[object, str] = {}
    made = []
    for place, message in enumerate(messages):
        made.append(message)
        if not isinstance(message, dict):
            continue
        if isinstance(call := message.get("function_call"), dict):
            id = ids[_name(call.get("name"))] = _call_id(place)
            rest = {name: value for name, value in message.items() if name != "function_call"}
            made[-1] = {**rest, "tool_calls": [{"id": id, "type": "function", "function": call}]}
        elif message.get("role") == "function":
            id = ids.get(_name(message.get("name")), _call_id(place))  # its call may be cut off
            made[-1] = {**message, "role": "tool", "tool_call_id": id}
    return made


def _call_id(place: int) -> str:
    return f"call{place:05}"  # nine characters, as some templates ask for


def _name(name: object) -> str:
    return name if isinstance(name, str) else ""
