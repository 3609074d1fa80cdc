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

from ..calls.gemma_calls import QUOTE
from .family import Calls, Family, FamilyName, ReasoningMarkers
from .notations import gemma, json_of_known, keyed, known, named, plain_json, python, tagged
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

_THINK = ReasoningMarkers("<think>", "</think>")
_IN_TAGS = Calls(
    openings=("<tool_call>",),
    notations=(plain_json, tagged(FUNCTION_TAGS), tagged(ARG_TAGS)),
    closings=("</tool_call>",),
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)

FAMILIES = (
    Family(
        "gpt-oss",
        wrappers=(
            *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
            *("<|end|>", "<|call|>", "<|return|>"),
        ),
        has_channels=True,
    ),
    Family(
        "gemma",
        reasoning=ReasoningMarkers("<|channel>thought", "<channel|>"),
        calls=Calls(("<|tool_call>",), (gemma,), ("<tool_call|>",), inner=(QUOTE,)),
        inner=("<|channel>",),
    ),
    Family(
        "dsml",
        reasoning=_THINK,
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
        reasoning=_THINK,
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
        reasoning=_THINK,
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
        reasoning=ReasoningMarkers("[THINK]", "[/THINK]"),
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
        reasoning=ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=Calls(
            openings=("<|START_ACTION|>", "Action: ```json", "Action:```json", "Action:\n```json"),
            notations=(plain_json,),
            closings=("<|END_ACTION|>", "```"),
        ),
        wrappers=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Family(
        "kimi-k3",
        reasoning=ReasoningMarkers("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
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
        reasoning=ReasoningMarkers("<|think|>", "<|end|>"),
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
        reasoning=ReasoningMarkers("<think:opensource>", "</think:opensource>"),
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
        reasoning=ReasoningMarkers("<seed:think>", "</seed:think>"),
        calls=Calls(
            openings=("<seed:tool_call>",),
            notations=(tagged(SEED_TAGS),),
            closings=("</seed:tool_call>",),
        ),
    ),
    Family(
        "nemotron",
        reasoning=_THINK,
        calls=Calls(("<TOOLCALL>",), (plain_json,), ("</TOOLCALL>",)),
    ),
    Family(
        "lfm",
        reasoning=_THINK,
        calls=Calls(("<|tool_call_start|>",), (plain_json, python), ("<|tool_call_end|>",)),
    ),
    Family(
        "llama4",
        calls=Calls(("<|python_start|>",), (plain_json, python), ("<|python_end|>",)),
        bare=(json_of_known,),
    ),
    Family(
        "apertus",
        reasoning=ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>"),
        calls=Calls(("<|tools_prefix|>",), (keyed,), ("<|tools_suffix|>",)),
    ),
    Family(
        "apriel",
        reasoning=ReasoningMarkers("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
        calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
        wrappers=("[END FINAL RESPONSE]",),
    ),
    Family(
        "gigachat",
        calls=Calls(
            ("<|function_call|>", "function call<|role_sep|>"),
            (plain_json,),
            inner=("<|role_sep|>",),
        ),
        wrappers=("<|message_sep|>",),
    ),
    Family("minimax-m3", reasoning=ReasoningMarkers("<mm:think>", "</mm:think>")),
    Family(
        "minimax",
        reasoning=_THINK,
        calls=Calls(
            openings=('<invoke name="',),
            notations=(tagged(INVOKE_TAGS),),
            wrappers=("<minimax:tool_call>", "</minimax:tool_call>"),
        ),
    ),
    Family("glm", reasoning=_THINK, calls=_IN_TAGS),
    Family(
        "granite",
        reasoning=_THINK,
        calls=Calls(
            openings=("<|tool_call|>", "<tool_call>"),
            notations=(plain_json,),
            closings=("</tool_call>",),
        ),
        wrappers=("<response>", "</response>"),
    ),
    Family(
        "phi",
        reasoning=_THINK,
        calls=Calls(
            openings=("<|tool_call|>", "functools"),
            notations=(plain_json,),
            closings=("<|/tool_call|>",),
        ),
    ),
    Family("qwen", reasoning=_THINK, calls=_IN_TAGS),
    Family(
        "minimax-m1",
        reasoning=_THINK,
        calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
    ),
    Family(
        "minicpm",
        reasoning=_THINK,
        calls=Calls(('<function name="',), (tagged(PARAM_TAGS),)),
    ),
    Family("exaone", reasoning=ReasoningMarkers("<thought>", "</thought>")),
    Family(
        "functionary-v3.2",
        wrappers=(">>>",),
        openers=("all\n",),
        bare=(known,),
    ),
    Family(
        "functionary",
        calls=Calls(("<function=",), (named(r"(?P<name>[\w.:-]+)>"),), ("</function>",)),
    ),
    Family(
        "llama",
        reasoning=_THINK,
        calls=Calls(openings=("<|python_tag|>",), notations=(plain_json,)),
        bare=(json_of_known,),
    ),
    Family("plain"),
)


def family_named(name: FamilyName) -> Family:
    """The family of that name."""
    return next(family for family in FAMILIES if family.name == name)
