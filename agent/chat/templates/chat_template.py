"""A chat template: the Jinja program that formats a conversation as its model was trained on."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import TracebackType
from typing import Any

import jinja2

from ....shared.errors import InvalidRequest
from ....shared.inference import ChatMessage, Notice
from ..families.call_syntax import JSON_CALLS, CallSyntax
from .instructions import as_users, instructions_shown
from .message_form import PlainMessage, form_wanted, ignores_tools
from .sandbox import Clock, LimitExceeded, Refusal, Sandbox, Timer, rendered
from .turns import calls_as_text, has_calls, in_turn, with_tools
from .user_text import ControlTexts, MixedUpError, RenderedText, Variables

_MISTAKES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors that faulty templates raise; any other error is a bug in Arriero."""

_GREETING = (ChatMessage(role="user", content="Hi."),)

_NO_CONTROL = ControlTexts(())

_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks where an answer continues; equal to Hugging Face's tag, which some templates look for."""


class TemplateError(Exception):
    """The template cannot be used; the message says why."""


class ChatTemplate:
    """A compiled template. Rendering changes nothing in it, so threads may share it."""

    def __init__(
        self,
        source: str,
        *,
        origin: str = "the model's chat template",
        bos_text: str,
        eos_text: str,
        clock: Clock,
        timer: Timer,
        control: ControlTexts = _NO_CONTROL,
        calls: CallSyntax = JSON_CALLS,
    ) -> None:
        """Compile the template. Raises `TemplateError`, which names the template by its `origin`.

        If the template does not show tools, an instruction tells the model to write calls in the
        notation `calls`. `clock` gives the local time to templates, `timer` the calling thread's
        CPU seconds.
        """
        self.origin = origin
        self._control = control
        self._timer = timer
        self._constants = {"bos_token": bos_text, "eos_token": eos_text, "documents": None}
        try:
            self._template = Sandbox(clock).compiled(source)
        except jinja2.TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message}"
            raise TemplateError(f"{origin} does not compile: {where}") from error
        except (RecursionError, SyntaxError) as error:  # from Python, without the template's line
            raise TemplateError(f"{origin} does not compile: {error.args[0]}") from error
        self._no_tools: dict[str, None] = {"tools": None}
        self._form = form_wanted(self._attempt)
        if not self._attempt(self._form.plain(_GREETING), None):
            self._no_tools = {}  # some loop over `tools` without checking for `None`
        self._instructions = instructions_shown(self._shows, names_developers="developer" in source)
        self.ignores_tools = ignores_tools(self._attempt, self._form)
        """True if the template never shows tools to the model."""
        self._shows_calls = self._form.shows_calls or not self.ignores_tools
        self._calls = calls if self.ignores_tools else JSON_CALLS

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[dict[str, Any]] | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        goes_on: bool = False,
        reasoning: str = "",
    ) -> RenderedText:
        """Return the conversation as text, cut where a client wrote the text of a control token.

        If the template does not show `tools`, an instruction describes the tools. `options` are
        more variables for the template. Empty lists and objects are treated as absent, since
        templates only ask whether they exist.

        If `goes_on` is true, the answer continues the last message. The text then ends where the
        last message ends, and the template writes that message like an answer. The exception is a
        template that would write `reasoning` (its opening marker) before it.

        If the template refuses the messages, they are rendered again with rearranged turns, and a
        notice says so. Raises `InvalidRequest`.
        """
        options = {name: value for name, value in (options or {}).items() if value not in ([], {})}
        is_on = options.get("enable_thinking") if thinking is None else thinking
        if isinstance(is_on, bool):
            options = {**_switches(is_on), **options}

        if tools and self.ignores_tools:
            messages = with_tools(messages, tools, self._calls)

        def text_of(given: Variables) -> str:
            if not goes_on:
                return self._rendered(given, add_generation_prompt)
            if not add_generation_prompt:
                return self._up_to_end(given)
            return self._as_answer(given, reasoning)

        def shown(turns: Sequence[ChatMessage]) -> RenderedText:
            def variables() -> Variables:
                given = deepcopy(list(tools)) if tools else None
                return Variables(self._form.plain(turns), given, deepcopy(dict(options)))

            return self._control.tell_apart(variables, text_of)

        refusal: BaseException | None = None
        for turns, changes in self._ways(messages):
            try:
                return replace(shown(turns), notices=self._notices(changes, refusal))
            except MixedUpError as error:
                raise InvalidRequest(
                    f"{self.origin} cannot show the messages: {error}", field="messages"
                ) from error
            except _MISTAKES as error:
                refusal = refusal or error
                if isinstance(error, LimitExceeded):
                    break
        raise InvalidRequest(self._sentence(refusal), field="messages") from refusal

    def _ways(
        self, messages: Sequence[ChatMessage]
    ) -> Iterator[tuple[Sequence[ChatMessage], tuple[str, ...]]]:
        """Yield the messages unchanged, then in forms that more templates accept.

        Each form comes with a description of its changes.
        """
        is_called = has_calls(messages)
        if self._shows_calls or not is_called:
            yield from self._in_turn(messages)
        if is_called:
            yield from self._in_turn(
                calls_as_text(messages, self._calls), "calls and results are shown as text"
            )

    def _in_turn(
        self, messages: Sequence[ChatMessage], *changes: str
    ) -> Iterator[tuple[Sequence[ChatMessage], tuple[str, ...]]]:
        placed = self._instructions.placed(messages)
        yield placed, changes
        last = placed
        for given in (messages, as_users(messages)):
            turns = in_turn(self._instructions.placed(in_turn(given)))
            if turns != last:
                yield turns, (*changes, "users and assistants take turns, users first")
            last = turns

    def _notices(self, changes: Sequence[str], refusal: BaseException | None) -> tuple[Notice, ...]:
        if not changes:
            return ()
        why = self._sentence(refusal) if refusal else f"{self.origin} does not show calls"
        return (Notice("messages_changed", f"`messages`: {why}; {', and '.join(changes)}"),)

    def _rendered(self, given: Variables, add_generation_prompt: bool = True) -> str:
        variables: dict[str, Any] = {
            **self._constants,
            **given.options,
            **({"tools": given.tools} if given.tools is not None else self._no_tools),
            "messages": given.messages,
            "add_generation_prompt": add_generation_prompt,
        }
        return rendered(self._template, variables, self._timer)

    def _attempt(self, messages: list[PlainMessage], tools: list[dict[str, Any]] | None) -> str:
        try:
            return self._rendered(Variables(messages, deepcopy(tools), {}))
        except _MISTAKES:
            return ""

    def _shows(self, messages: Sequence[ChatMessage]) -> bool:
        text = self._attempt(self._form.plain(messages), None)
        return bool(text) and all(message.text in text for message in messages)

    def _as_answer(self, given: Variables, reasoning: str) -> str:
        """Render up to the end of the last message, after the text that begins an answer.

        Many templates turn reasoning off by writing an empty reasoning before the answer, and
        models are trained to write every answer after it. Templates omit the empty reasoning
        before a message of the history.
        """
        *before, last = given.messages
        said = last["content"]
        opening = self._opening(replace(given, messages=before))
        text = self._up_to_end(given)
        if not isinstance(said, str) or (reasoning and opening.rstrip().endswith(reasoning)):
            return text
        shown = said if text.endswith(said) else said.strip()
        head = text.removesuffix(shown)
        begins_so = head != text and head and opening.startswith(head)
        return opening + shown if begins_so else text

    def _opening(self, before: Variables) -> str:
        """Return the text that begins an answer; empty if the template refuses `before` alone."""
        try:
            return self._rendered(deepcopy(before))
        except _MISTAKES:
            return ""

    def _up_to_end(self, given: Variables) -> str:
        last = given.messages[-1]
        content = last["content"] or ""
        if isinstance(content, str):
            last["content"] = content + _TAG
        else:
            content[-1]["text"] += _TAG
        text = self._rendered(given, add_generation_prompt=False)
        before, tag, after = text.rpartition(_TAG.strip())
        if not tag:
            raise Refusal("it does not show the last message, which was to be continued")
        # A template that strips the message strips the tag's space as well.
        return before if after.startswith(" ") else before.rstrip()

    def _sentence(self, error: BaseException | None) -> str:
        verb = "refuses the messages" if isinstance(error, Refusal) else "failed on the messages"
        line = _line(error.__traceback__) if error else None
        return f"{self.origin} {verb}{f', line {line}' if line else ''}: {error}"


def _switches(thinking: bool) -> dict[str, Any]:
    """Return the variables that templates use to turn thinking on and off."""
    return {
        "enable_thinking": thinking,
        "thinking": thinking,
        "thinking_mode": "enabled" if thinking else "disabled",
    }


def _line(traceback: TracebackType | None) -> int | None:
    """Return the innermost line of the template; Jinja names its frames `<template>`."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
