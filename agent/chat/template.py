"""A model's own chat template: Jinja, rendered as Hugging Face renders it, in a sandbox.

A template comes with the model file, so it is somebody else's program. Attributes that lead out of
the sandbox are refused, nothing that is passed in can be changed, a render may go through at most
`MAX_ROUNDS` rounds of all its loops together and write at most `MAX_RENDERED` characters. What the
template does between two rounds of a loop is bounded by Python's recursion limit alone.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...shared.errors import InvalidRequest
from ...shared.inference import ChatMessage

MAX_ROUNDS = 200_000
"""Rounds of all loops in one render: some fifty for each message of the longest conversation."""

MAX_RENDERED = 32 * 1024 * 1024
"""Characters one render may write; twice the longest body a client may send."""

_ROUNDS = "_rounds"
_BROKEN = "the model's chat template does not compile"
_MISTAKES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own mistakes raise; anything else is a mistake of ours."""


class TemplateError(Exception):
    """The template does not compile; the message says where."""


class ChatTemplate:
    """A compiled template. Rendering changes nothing in it, so threads may share it."""

    def __init__(
        self, source: str, *, bos_text: str, eos_text: str, clock: Callable[[], datetime]
    ) -> None:
        """Raises `TemplateError`. `clock` gives the local time to templates that ask."""
        self._knows_developers = "developer" in source
        self._constants = {"bos_token": bos_text, "eos_token": eos_text, "documents": None}
        environment = _environment(clock)
        try:
            self._template = environment.from_string(_count_rounds(environment.parse(source)))
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{_BROKEN}: line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError) as error:  # from Python, which knows no line of ours
            raise TemplateError(f"{_BROKEN}: {error.args[0]}") from error

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[dict[str, Any]] | None,
        thinking: bool | None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The conversation as the text the model was trained on. Raises `InvalidRequest`."""
        variables: dict[str, Any] = {
            **self._constants,
            "messages": [self._plain(message) for message in messages],
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": add_generation_prompt,
            _ROUNDS: count(1),
        }
        if thinking is not None:
            variables["enable_thinking"] = thinking
        try:
            return _bounded(self._template.generate(variables))
        except _MISTAKES as error:
            raise InvalidRequest(_sentence(error), field="messages") from error

    def _plain(self, message: ChatMessage) -> dict[str, Any]:
        plain: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.role == "developer" and not self._knows_developers:
            # Templates skip roles they do not know, and the instructions would be lost in silence.
            plain["role"] = "system"
        for key in ("name", "reasoning_content", "tool_call_id"):
            if (value := getattr(message, key)) is not None:
                plain[key] = value
        if message.tool_calls is not None:
            plain["tool_calls"] = [_with_parsed_arguments(call) for call in message.tool_calls]
        return plain


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """OpenAI sends a call's arguments as JSON text; templates print them with `tojson`."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


# ---- the environment templates expect


class _Refusal(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}` marks an assistant's words, for training; its body stands as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(clock: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.filters[_ROUNDS] = _counted
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes `<`, `>` and `&` for HTML, which models have never seen."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise _Refusal(message)


# ---- what bounds a render


def _count_rounds(template: nodes.Template) -> nodes.Template:
    for loop in template.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _ROUNDS, [], [], None, None, lineno=loop.lineno)
    return template


@jinja2.pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    rounds = context[_ROUNDS]
    for item in items:
        if next(rounds) > MAX_ROUNDS:
            raise _Refusal(f"its loops went on for more than {MAX_ROUNDS} rounds")
        yield item


def _bounded(parts: Iterable[str]) -> str:
    kept, length = [], 0
    for part in parts:
        length += len(part)
        if length > MAX_RENDERED:
            raise _Refusal(f"it wrote more than {MAX_RENDERED} characters")
        kept.append(part)
    return "".join(kept)


def _sentence(error: BaseException) -> str:
    verb = "refuses the messages" if isinstance(error, _Refusal) else "failed on the messages"
    line = _line(error.__traceback__)
    return f"the model's chat template {verb}{f', line {line}' if line else ''}: {error}"


def _line(traceback: TracebackType | None) -> int | None:
    """The innermost line of the template; Jinja names its frames `<template>`."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
