"""How each family writes calls, for a grammar that has to say so.

A family's notation may depend on the model: the template shows which one it was trained on. In what
is written here some words and signs stand for others:

| in it | stands for |
| --- | --- |
| `NAME` | the function's name |
| `NUMBER` | some number |
| `KEY` | the argument's name |
| `TYPE` | what the notation calls its type |
| `↵` | new lines, or none |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..calls.tagged_calls import Tags
from .family import Family, FamilyName
from .notations import json_of_known
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


@dataclass(frozen=True, slots=True)
class Members:
    """Arguments one by one: `begin`, the value, `end`, then `after`; `between` two of them.

    Text stands as it is and holds none of `barred`; without those it is JSON, as other values are.
    `types` say for JSON's types what `TYPE` stands for. Of a name there may be `key` characters.
    """

    begin: str
    end: str = ""
    after: str = ""
    between: str = ""
    barred: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    key: str = r'[^<>"\n]+'


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """`before` all calls and `after` them, `begin` and `end` around the arguments of each.

    A name is written as in a JSON string where it is `quoted`. Without a `between` there can only
    be one call. `opening` is the marker that the whole begins with; without one, an answer with
    calls begins with them, and one without is as the regular expression `text` says.
    """

    begin: str
    end: str = ""
    between: str | None = None
    before: str = ""
    after: str = ""
    opening: str | None = None
    is_quoted: bool = True
    arguments: Members | Literal["json", "gemma"] = "json"
    text: str = r"[^{\[\s](.|\n)*"


def _list_after(
    opening: str, after: str, begin: str = '{"name": "NAME", "arguments": '
) -> CallSyntax:
    return CallSyntax(
        begin, "}", between=", ", before=f"{opening}[", after=f"]{after}", opening=opening
    )


def _tagged(
    tags: Tags,
    *,
    key_end: str | None = None,
    line: str = "",
    after: str = "",
    types: Mapping[str, str] | None = None,
) -> Members:
    """`line` comes before a value's own tag, `after` comes after the value."""
    new_line = "\n" if tags.has_lines else ""
    start = f"{line}{tags.value_start}" if tags.value_start else ""
    return Members(
        begin=f"{tags.key_start}KEY{tags.key_end if key_end is None else key_end}{start}{new_line}",
        end=f"{new_line}{tags.value_end}",
        after=after,
        barred=(tags.value_end, tags.end, tags.key_start),
        types=types or {},
    )


_IN_TAGS = CallSyntax(
    '<tool_call>\n{"name": "NAME", "arguments": ',
    "}\n</tool_call>",
    between="\n",
    opening="<tool_call>",
)
_QWEN_XML = CallSyntax(
    "<tool_call>\n<function=NAME>\n",
    "</function>\n</tool_call>",
    between="↵",
    opening="<tool_call>",
    is_quoted=False,
    arguments=_tagged(FUNCTION_TAGS, after="\n"),
)
_GLM = CallSyntax(
    "<tool_call>NAME↵",
    "</tool_call>",
    between="↵",
    opening="<tool_call>",
    is_quoted=False,
    arguments=_tagged(ARG_TAGS, line="↵", after="↵"),
)
_GEMMA = CallSyntax(
    "<|tool_call>call:NAME",
    "<tool_call|>",
    between="",
    opening="<|tool_call>",
    is_quoted=False,
    arguments="gemma",
)
_LLAMA = CallSyntax('{"name": "NAME", "parameters": ', "}")
_MISTRAL_LIST = _list_after("[TOOL_CALLS]", "")
_MISTRAL = CallSyntax("[TOOL_CALLS]NAME[ARGS]", between="", opening="[TOOL_CALLS]", is_quoted=False)
_DEEPSEEK = CallSyntax(
    "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    between="",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)
_DEEPSEEK_R1 = CallSyntax(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
    "\n```<｜tool▁call▁end｜>",
    between="\n",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)
_KIMI = CallSyntax(
    "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    between="",
    before="<|tool_calls_section_begin|>",
    after="<|tool_calls_section_end|>",
    opening="<|tool_calls_section_begin|>",
    is_quoted=False,
)
_KIMI_K3 = CallSyntax(
    '<|open|>call tool="NAME" index="NUMBER"<|sep|>',
    "<|close|>call<|sep|>",
    between="",
    before="<|open|>tools<|sep|>",
    after="<|close|>tools<|sep|><|close|>message<|sep|>",
    opening="<|open|>tools<|sep|>",
    is_quoted=False,
    arguments=_tagged(
        KIMI_K3_TAGS,
        key_end='" type="TYPE"<|sep|>',
        types={"integer": "number"},
    ),
)
_COMMAND_R = _list_after(
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    '{"tool_call_id": "NUMBER", "tool_name": "NAME", "parameters": ',
)
_COMMAND_R_PLUS = _list_after("Action: ```json\n", "\n```", '{"tool_name": "NAME", "parameters": ')
_GRANITE = _list_after("<|tool_call|>", "")
_PHI = _list_after("<|tool_call|>", "<|/tool_call|>")
_CHANNELS = CallSyntax(
    "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", is_quoted=False
)
_MINIMAX = CallSyntax(
    '<invoke name="NAME">\n',
    "</invoke>\n",
    between="",
    before="<minimax:tool_call>\n",
    after="</minimax:tool_call>",
    opening="<minimax:tool_call>",
    is_quoted=False,
    arguments=_tagged(INVOKE_TAGS, after="\n"),
)
_MINIMAX_M1 = CallSyntax(
    '{"name": "NAME", "arguments": ',
    "}\n",
    between="",
    before="<tool_calls>\n",
    after="</tool_calls>",
    opening="<tool_calls>",
)
_HUNYUAN = CallSyntax(
    "<tool_call:opensource>NAME<tool_sep:opensource>\n",
    "</tool_call:opensource>\n",
    between="",
    before="<tool_calls:opensource>\n",
    after="</tool_calls:opensource>",
    opening="<tool_calls:opensource>",
    is_quoted=False,
    arguments=_tagged(HUNYUAN_TAGS, line="\n", after="\n"),
)
_SEED = CallSyntax(
    "<seed:tool_call>\n<function=NAME>\n",
    "</function>\n</seed:tool_call>",
    between="\n",
    opening="<seed:tool_call>",
    is_quoted=False,
    arguments=_tagged(SEED_TAGS, after="\n"),
)
_NEMOTRON = _list_after("<TOOLCALL>", "</TOOLCALL>")
_LFM = CallSyntax(
    "NAME(",
    ")",
    between=", ",
    before="<|tool_call_start|>[",
    after="]<|tool_call_end|>",
    opening="<|tool_call_start|>",
    is_quoted=False,
    arguments=Members("KEY=", between=", ", key=r"[\w.-]+"),
)
_APERTUS = _list_after("<|tools_prefix|>", "<|tools_suffix|>", '{"NAME": ')
_APRIEL = _list_after("<tool_calls>", "</tool_calls>")
_SOLAR = CallSyntax(
    "<|tool_call:begin|>NUMBER<|tool_call:name|>NAME<|tool_call:args|>",
    "<|tool_call:end|>",
    between="",
    before="<|tool_calls|>",
    after="<|calls|>",
    opening="<|tool_calls|>",
    is_quoted=False,
)
_GIGACHAT = CallSyntax(
    '<|function_call|>{"name": "NAME", "arguments": ', "}", opening="<|function_call|>"
)
_GIGACHAT_3 = CallSyntax(
    '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "NAME", "arguments": ',
    "}",
    opening="<|message_sep|>",
)
_MINICPM = CallSyntax(
    '<function name="NAME">',
    "</function>",
    between="\n",
    opening='<function name="',
    is_quoted=False,
    arguments=_tagged(PARAM_TAGS),
)
_FUNCTIONARY = CallSyntax(
    "<function=NAME>", "</function>", between="", opening="<function=", is_quoted=False
)
_FUNCTIONARY_3_2 = CallSyntax("NAME\n", between=">>>", is_quoted=False, text=r"all\n(.|\n)*")

_DSML_TYPES = {
    "string": "true",
    **dict.fromkeys(("number", "integer", "boolean", "null", "array", "object"), "false"),
}


def _dsml(wrapper: str) -> CallSyntax:
    return CallSyntax(
        '<｜DSML｜invoke name="NAME">\n',
        "</｜DSML｜invoke>\n",
        between="",
        before=f"<｜DSML｜{wrapper}>\n",
        after=f"</｜DSML｜{wrapper}>",
        opening=f"<｜DSML｜{wrapper}>",
        is_quoted=False,
        arguments=_tagged(DSML_TAGS, key_end='" string="TYPE">', after="\n", types=_DSML_TYPES),
    )


JSON_CALLS = CallSyntax('{"name": "NAME", "arguments": ', "}", between=", ", before="[", after="]")
"""A list of calls as JSON, for forced calls of models whose own notation cannot be written."""

_BY_FAMILY: dict[FamilyName, CallSyntax] = {
    "apertus": _APERTUS,
    "apriel": _APRIEL,
    "functionary": _FUNCTIONARY,
    "functionary-v3.2": _FUNCTIONARY_3_2,
    "gemma": _GEMMA,
    "glm": _GLM,
    "gpt-oss": _CHANNELS,
    "hunyuan": _HUNYUAN,
    "kimi": _KIMI,
    "kimi-k3": _KIMI_K3,
    "lfm": _LFM,
    "llama": _LLAMA,
    "llama4": _LLAMA,
    "minicpm": _MINICPM,
    "minimax": _MINIMAX,
    "minimax-m1": _MINIMAX_M1,
    "nemotron": _NEMOTRON,
    "phi": _PHI,
    "seed": _SEED,
    "solar": _SOLAR,
}


def forced_family(family: Family, template: str) -> Family:
    """How the forced calls of a model of `family` are read: as `JSON_CALLS` if need be."""
    if call_syntax(family.name, template) is not None:
        return family
    return replace(family, calls=None, bare=(json_of_known,))


def call_syntax(family: FamilyName, template: str) -> CallSyntax | None:
    """How a model of `family` with that template writes calls; `None` where nobody can say."""
    match family:
        case "qwen":
            return _QWEN_XML if "<function=" in template else _IN_TAGS
        case "mistral":
            return _MISTRAL if "[ARGS]" in template else _MISTRAL_LIST
        case "deepseek":
            return _DEEPSEEK_R1 if "```json" in template else _DEEPSEEK
        case "command-r":
            return _COMMAND_R if "<|START_ACTION|>" in template else _COMMAND_R_PLUS
        case "granite":
            return _GRANITE if "<|tool_call|>" in template else _IN_TAGS
        case "gigachat":
            return _GIGACHAT if "<|function_call|>" in template else _GIGACHAT_3
        case "dsml":
            return _dsml("tool_calls" if "tool_calls>" in template else "function_calls")
        case _:
            return _BY_FAMILY.get(family)
