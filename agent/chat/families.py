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
| `minimax-m1` | `<think>…</think>` | `<tool_calls>` around JSON |
| `minimax-m3` | `<mm:think>…</mm:think>` | not read: it stays content |
| `dsml` | `<think>…</think>` | `<｜DSML｜invoke name="…"><｜DSML｜parameter name="…" string="…">` |
| `kimi-k3` | `<\\|open\\|>think<\\|sep\\|>…` | `<\\|open\\|>call tool="…" index="1"<\\|sep\\|>` |
| `seed` | `<seed:think>…` | `<seed:tool_call>` around `<function=…><parameter=…>` |
| `nemotron` | `<think>…</think>` | `<TOOLCALL>` around a JSON list |
| `lfm` | `<think>…</think>` | `<\\|tool_call_start\\|>` around Python's calls, or JSON |
| `llama4` | none | `<\\|python_start\\|>` around the same, or as `llama` |
| `apertus` | `<\\|inner_prefix\\|>…` | `<\\|tools_prefix\\|>[{"name": {…}}]<\\|tools_suffix\\|>` |
| `apriel` | up to `[BEGIN FINAL RESPONSE]` | `<tool_calls>` around a JSON list |
| `hunyuan` | `<think:opensource>…` | as `glm`, every tag with `:opensource` |
| `solar` | `<\\|think\\|>…<\\|end\\|>` | `<\\|tool_call:begin\\|>id`, a marker, a name and JSON |
| `gigachat` | none | `<\\|function_call\\|>` or `function call<\\|role_sep\\|>` and JSON |
| `minicpm` | `<think>…</think>` | `<function name="…"><param name="…">` |
| `functionary` | none | `<function=name>` and JSON |
| `functionary-v3.2` | none | `>>>name` and JSON; content after `>>>all` |
| `exaone` | `<thought>…</thought>` | none |
| `plain` | none | none |
"""

from dataclasses import dataclass
from typing import Literal

from .calls.gemma_calls import QUOTE
from .notations import (
    Notation,
    gemma,
    json_of_known,
    keyed,
    known,
    named,
    plain_json,
    python,
    tagged,
)
from .tag_notations import (
    ARG_TAGS,
    DSML_TAGS,
    FUNCTION_TAGS,
    HUNYUAN_TAGS,
    INVOKE_TAGS,
    KIMI_K3_TAGS,
    PARAM_TAGS,
    SEED_TAGS,
)

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
    "minimax-m1",
    "minimax-m3",
    "dsml",
    "kimi-k3",
    "seed",
    "nemotron",
    "lfm",
    "llama4",
    "apertus",
    "apriel",
    "hunyuan",
    "solar",
    "gigachat",
    "minicpm",
    "functionary",
    "functionary-v3.2",
    "exaone",
    "plain",
]

ChatFamily = Literal["auto", FamilyName]
"""A family's name, or `auto`: the one that the chat template shows."""


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

    `wrappers` stand around content and say nothing, and so do `openers`, at its beginning. An
    answer may begin with a call in one of the notations `bare`, without a marker. `inner` are
    control tokens that markers consist of. With `has_channels` the answer is a row of messages with
    headers.
    """

    name: FamilyName
    hints: tuple[tuple[str, ...], ...] = ()
    thoughts: Thoughts | None = None
    calls: Calls | None = None
    wrappers: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    bare: tuple[Notation, ...] = ()
    inner: tuple[str, ...] = ()
    has_channels: bool = False

    def markers(self, *, has_tools: bool) -> tuple[str, ...]:
        """What has to show in the text for the answer to be told apart."""
        found = [*self.wrappers, *self.inner]
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


# ---- the table; what comes first is recognised first

_THINK = Thoughts("<think>", "</think>")
_IN_TAGS = Calls(
    openings=("<tool_call>",),
    notations=(plain_json, tagged(FUNCTION_TAGS), tagged(ARG_TAGS)),
    closings=("</tool_call>",),
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
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
        calls=Calls(("<|tool_call>",), (gemma,), ("<tool_call|>",), inner=(QUOTE,)),
        inner=("<|channel>",),
    ),
    Family(
        "dsml",
        hints=(("｜DSML｜",),),
        thoughts=_THINK,
        calls=Calls(
            openings=('<｜DSML｜invoke name="',),
            notations=(tagged(DSML_TAGS),),
            wrappers=(
                *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
                *("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
            ),
        ),
        inner=("｜DSML｜",),
    ),
    Family(
        "deepseek",
        hints=(("<｜tool▁calls▁begin｜>",), ("<｜Assistant｜>",)),
        thoughts=_THINK,
        calls=Calls(
            openings=("<｜tool▁call▁begin｜>",),
            notations=(
                named(r"function<｜tool▁sep｜>(?P<name>[\w.:-]+)\s*```json"),
                named(r"(?P<name>[\w.:-]+)<｜tool▁sep｜>"),
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
                named(
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
                plain_json,
                named(r"(?P<name>[\w.:-]+?)(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?"),
            ),
            inner=("[ARGS]", "[CALL_ID]"),
        ),
    ),
    Family(
        "command-r",
        hints=(("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),),
        thoughts=Thoughts("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=Calls(
            openings=("<|START_ACTION|>", "Action: ```json", "Action:```json", "Action:\n```json"),
            notations=(plain_json,),
            closings=("<|END_ACTION|>", "```"),
        ),
        wrappers=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Family(
        "kimi-k3",
        hints=(("<|open|>", "<|close|>", "<|sep|>"),),
        thoughts=Thoughts("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        calls=Calls(
            openings=('<|open|>call tool="',),
            notations=(tagged(KIMI_K3_TAGS),),
            wrappers=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        ),
        wrappers=(
            *("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
            "<|close|>message<|sep|>",
        ),
        inner=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    Family(
        "solar",
        hints=(("<|tool_call:begin|>",),),
        thoughts=Thoughts("<|think|>", "<|end|>"),
        calls=Calls(
            openings=("<|tool_call:begin|>",),
            notations=(
                named(
                    r"(?P<id>[\w.:-]*)<\|tool_call:name\|>(?P<name>[\w.:-]+)<\|tool_call:args\|>"
                ),
            ),
            closings=("<|tool_call:end|>",),
            wrappers=("<|tool_calls|>", "<|calls|>"),
            inner=("<|tool_call:name|>", "<|tool_call:args|>"),
        ),
        wrappers=("<|begin|>assistant", "<|content|>", "<|end|>"),
        inner=("<|begin|>",),
    ),
    Family(
        "hunyuan",
        hints=(("<tool_call{}>", ":opensource"), ("<tool_call:opensource>",)),
        thoughts=Thoughts("<think:opensource>", "</think:opensource>"),
        calls=Calls(
            openings=("<tool_call:opensource>",),
            notations=(tagged(HUNYUAN_TAGS),),
            closings=("</tool_call:opensource>",),
            wrappers=("<tool_calls:opensource>", "</tool_calls:opensource>"),
            inner=(
                *("<tool_sep:opensource>", "<arg_key:opensource>", "</arg_key:opensource>"),
                *("<arg_value:opensource>", "</arg_value:opensource>"),
            ),
        ),
    ),
    Family(
        "seed",
        hints=(("<seed:tool_call>",), ("<seed:think>",)),
        thoughts=Thoughts("<seed:think>", "</seed:think>"),
        calls=Calls(
            openings=("<seed:tool_call>",),
            notations=(tagged(SEED_TAGS),),
            closings=("</seed:tool_call>",),
        ),
    ),
    Family(
        "nemotron",
        hints=(("<TOOLCALL>",),),
        thoughts=_THINK,
        calls=Calls(("<TOOLCALL>",), (plain_json,), ("</TOOLCALL>",)),
    ),
    Family(
        "lfm",
        hints=(("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: [",)),
        thoughts=_THINK,
        calls=Calls(("<|tool_call_start|>",), (plain_json, python), ("<|tool_call_end|>",)),
    ),
    Family(
        "llama4",
        hints=(("<|header_start|>",),),
        calls=Calls(("<|python_start|>",), (plain_json, python), ("<|python_end|>",)),
        bare=(json_of_known,),
    ),
    Family(
        "apertus",
        hints=(("<|tools_prefix|>",),),
        thoughts=Thoughts("<|inner_prefix|>", "<|inner_suffix|>"),
        calls=Calls(("<|tools_prefix|>",), (keyed,), ("<|tools_suffix|>",)),
    ),
    Family(
        "apriel",
        hints=(("[BEGIN FINAL RESPONSE]",),),
        thoughts=Thoughts("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
        calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
        wrappers=("[END FINAL RESPONSE]",),
    ),
    Family(
        "gigachat",
        hints=(("<|role_sep|>", "<|message_sep|>"),),
        calls=Calls(
            ("<|function_call|>", "function call<|role_sep|>"),
            (plain_json,),
            inner=("<|role_sep|>",),
        ),
        wrappers=("<|message_sep|>",),
    ),
    Family("minimax-m3", hints=(("<mm:think>",),), thoughts=Thoughts("<mm:think>", "</mm:think>")),
    Family(
        "minimax",
        hints=(("<minimax:tool_call>",),),
        thoughts=_THINK,
        calls=Calls(
            openings=('<invoke name="',),
            notations=(tagged(INVOKE_TAGS),),
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
            notations=(plain_json,),
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
            notations=(plain_json,),
            closings=("<|/tool_call|>",),
        ),
    ),
    Family("qwen", hints=(("<tool_call>",),), thoughts=_THINK, calls=_IN_TAGS),
    Family(
        "minimax-m1",
        hints=(("<tool_calls>",),),
        thoughts=_THINK,
        calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
    ),
    Family(
        "minicpm",
        hints=(('<function name="',),),
        thoughts=_THINK,
        calls=Calls(('<function name="',), (tagged(PARAM_TAGS),)),
    ),
    Family("exaone", hints=(("<thought>",),), thoughts=Thoughts("<thought>", "</thought>")),
    Family(
        "functionary-v3.2",
        hints=((">>>all",),),
        wrappers=(">>>",),
        openers=("all\n",),
        bare=(known,),
    ),
    Family(
        "functionary",
        hints=(("<{start_tag}=",),),
        calls=Calls(("<function=",), (named(r"(?P<name>[\w.:-]+)>"),), ("</function>",)),
    ),
    Family(
        "llama",
        hints=(("<|python_tag|>",), ("<|start_header_id|>",)),
        thoughts=_THINK,
        calls=Calls(openings=("<|python_tag|>",), notations=(plain_json,)),
        bare=(json_of_known,),
    ),
    # Models of other families that reason in the same way.
    Family("qwen", hints=(("<think>",),), thoughts=_THINK, calls=_IN_TAGS),
    Family("plain"),
)
