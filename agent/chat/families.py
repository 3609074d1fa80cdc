"""The families of models: by which markers each tells reasoning and tool calls from content.

| family | reasoning | a tool call |
| --- | --- | --- |
| `qwen` | `<think>…</think>` | `<tool_call>` around JSON, or around `<function=…><parameter=…>` |
| `glm` | `<think>…</think>` | `<tool_call>name<arg_key>…</arg_key><arg_value>…</arg_value>` |
| `llama` | `<think>…</think>` | JSON after `<\\|python_tag\\|>`, or alone naming a known tool |
| `mistral` | `[THINK]…[/THINK]` | `[TOOL_CALLS]` and a JSON list, or `name[ARGS]` and JSON |
| `deepseek` | `<think>…</think>` | `<｜tool▁call▁begin｜>name<｜tool▁sep｜>` and JSON |
| `kimi` | `<think>…</think>` | `<\\|tool_call_begin\\|>functions.name:0`, a marker and JSON |
| `gemma` | `<\\|channel>thought…<channel\\|>` | `<\\|tool_call>call:name{…}<tool_call\\|>` |
| `gpt-oss` | the channel `analysis` | a message to `functions.name` |
| `granite` | `<think>…</think>` | `<\\|tool_call\\|>` and a JSON list, or as `qwen` |
| `phi` | `<think>…</think>` | `<\\|tool_call\\|>` or `functools` and a JSON list |
| `command-r` | `<\\|START_THINKING\\|>…` | `<\\|START_ACTION\\|>` or `Action:` and a JSON list |
| `minimax` | `<think>…</think>` | `<invoke name="…"><parameter name="…">` |
| `plain` | none | none |
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .calls.gemma_calls import QUOTE, gemma_call
from .calls.json_calls import json_calls
from .calls.named_calls import named_call
from .calls.tagged_calls import Tags, tagged_call
from .reader import Parse, Reader
from .tools import Tools

FamilyName = Literal[
    "qwen",
    "glm",
    "llama",
    "mistral",
    "deepseek",
    "kimi",
    "gemma",
    "gpt-oss",
    "granite",
    "phi",
    "command-r",
    "minimax",
    "plain",
]

ChatFamily = Literal["auto", FamilyName]
"""A family's name, or `auto`: the one that the chat template shows."""

Notation = Callable[[Reader, Tools], Parse[bool]]
"""Reads what follows a call's opening marker. False, with no call begun, if it is none."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How a family writes calls: after one of `openings`, in the first of `notations` that fits.

    `closings` may follow; `wrappers` may stand around several calls; `inner` markers are within.
    """

    openings: tuple[str, ...]
    notations: tuple[Notation, ...]
    closings: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The markers around reasoning."""

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class Family:
    """`hints`: sets of texts, of which a template of the family has all of one.

    `wrappers` stand around content and say nothing. With `has_bare_calls` an answer that begins
    with JSON may be a call. With `has_channels` the answer is a row of messages with headers.
    """

    name: FamilyName
    hints: tuple[tuple[str, ...], ...] = ()
    thoughts: Thoughts | None = None
    calls: Calls | None = None
    wrappers: tuple[str, ...] = ()
    has_bare_calls: bool = False
    has_channels: bool = False

    def markers(self, *, has_tools: bool) -> tuple[str, ...]:
        """What has to show in the text for the answer to be told apart."""
        found = list(self.wrappers)
        if self.thoughts:
            found += [self.thoughts.opening, self.thoughts.closing]
        if self.calls and has_tools:
            calls = self.calls
            found += [*calls.openings, *calls.closings, *calls.wrappers, *calls.inner]
        return tuple(dict.fromkeys(found))


def family_named(name: FamilyName) -> Family:
    """The family of that name."""
    return next(family for family in FAMILIES if family.name == name)


def family_of(template: str) -> Family:
    """The family that a chat template's source shows; `plain` if it shows none."""
    return next(
        family
        for family in FAMILIES
        if not family.hints or any(all(each in template for each in hint) for hint in family.hints)
    )


# ---- notations


def _json(reader: Reader, _tools: Tools) -> Parse[bool]:
    return json_calls(reader, bool)


def _json_of_known(reader: Reader, tools: Tools) -> Parse[bool]:
    return json_calls(reader, tools.is_known)


def _named(header: str) -> Notation:
    pattern = re.compile(header)
    return lambda reader, _tools: named_call(reader, pattern)


def _tagged(tags: Tags) -> Notation:
    return lambda reader, tools: tagged_call(reader, tags, tools.is_text)


def _gemma(reader: Reader, _tools: Tools) -> Parse[bool]:
    return gemma_call(reader)


BARE_CALL: Notation = _json_of_known

_FUNCTION_TAGS = Tags("<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>")
_ARG_TAGS = Tags("", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>")
_INVOKE_TAGS = Tags("", '">', '<parameter name="', '">', "", "</parameter>", "</invoke>")

# ---- the table; what comes first is recognised first

_THINK = Thoughts("<think>", "</think>")
_IN_TAGS = Calls(
    openings=("<tool_call>",),
    notations=(_json, _tagged(_FUNCTION_TAGS), _tagged(_ARG_TAGS)),
    closings=("</tool_call>",),
)

FAMILIES = (
    Family(
        "gpt-oss",
        hints=(("<|channel|>", "<|message|>"),),
        wrappers=(
            *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
            *("<|end|>", "<|call|>", "<|return|>"),
        ),
        has_channels=True,
    ),
    Family(
        "gemma",
        hints=(("<|tool_call>",), ("<|channel>",)),
        thoughts=Thoughts("<|channel>thought", "<channel|>"),
        calls=Calls(("<|tool_call>",), (_gemma,), ("<tool_call|>",), inner=(QUOTE,)),
    ),
    Family(
        "deepseek",
        hints=(("<｜tool▁calls▁begin｜>",), ("<｜Assistant｜>",)),
        thoughts=_THINK,
        calls=Calls(
            openings=("<｜tool▁call▁begin｜>",),
            notations=(
                _named(r"function<｜tool▁sep｜>(?P<name>[\w.:-]+)\s*```json"),
                _named(r"(?P<name>[\w.:-]+)<｜tool▁sep｜>"),
            ),
            closings=("```", "<｜tool▁call▁end｜>"),
            wrappers=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
            inner=("<｜tool▁sep｜>",),
        ),
    ),
    Family(
        "kimi",
        hints=(("<|tool_calls_section_begin|>",), ("<|im_middle|>",)),
        thoughts=_THINK,
        calls=Calls(
            openings=("<|tool_call_begin|>",),
            notations=(
                _named(
                    r"(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)"
                    r"\s*<\|tool_call_argument_begin\|>"
                ),
            ),
            closings=("<|tool_call_end|>",),
            wrappers=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            inner=("<|tool_call_argument_begin|>",),
        ),
    ),
    Family(
        "mistral",
        hints=(("[TOOL_CALLS]",), ("[THINK]",), ("[INST]",)),
        thoughts=Thoughts("[THINK]", "[/THINK]"),
        calls=Calls(
            openings=("[TOOL_CALLS]",),
            notations=(
                _json,
                _named(r"(?P<name>[\w.:-]+?)(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?"),
            ),
            inner=("[ARGS]", "[CALL_ID]"),
        ),
    ),
    Family(
        "command-r",
        hints=(("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),),
        thoughts=Thoughts("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=Calls(
            openings=("<|START_ACTION|>", "Action: ```json", "Action:```json"),
            notations=(_json,),
            closings=("<|END_ACTION|>", "```"),
        ),
        wrappers=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Family(
        "minimax",
        hints=(("<minimax:tool_call>",),),
        thoughts=_THINK,
        calls=Calls(
            openings=('<invoke name="',),
            notations=(_tagged(_INVOKE_TAGS),),
            wrappers=("<minimax:tool_call>", "</minimax:tool_call>"),
        ),
    ),
    Family("glm", hints=(("<arg_key>",), ("[gMASK]",)), thoughts=_THINK, calls=_IN_TAGS),
    Family(
        "granite",
        hints=(("<|start_of_role|>",),),
        thoughts=_THINK,
        calls=Calls(
            openings=("<|tool_call|>", "<tool_call>"),
            notations=(_json,),
            closings=("</tool_call>",),
        ),
        wrappers=("<response>", "</response>"),
    ),
    Family(
        "phi",
        hints=(("<|tool_call|>",), ("<|assistant|>", "<|user|>", "<|end|>"), ("<|im_sep|>",)),
        thoughts=_THINK,
        calls=Calls(
            openings=("<|tool_call|>", "functools"),
            notations=(_json,),
            closings=("<|/tool_call|>",),
        ),
    ),
    Family("qwen", hints=(("<tool_call>",),), thoughts=_THINK, calls=_IN_TAGS),
    Family(
        "llama",
        hints=(("<|python_tag|>",), ("<|start_header_id|>",)),
        thoughts=_THINK,
        calls=Calls(openings=("<|python_tag|>",), notations=(_json,)),
        has_bare_calls=True,
    ),
    # Models of other families that reason in the same way.
    Family("qwen", hints=(("<think>",),), thoughts=_THINK, calls=_IN_TAGS),
    Family("plain"),
)
