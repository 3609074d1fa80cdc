"""JSON calls after a marker: Granite, Phi, Nemotron, Apertus, Apriel, GigaChat."""

from ..call_syntax import JSON_IN_TAGS, CallSyntax, json_list
from ..family import THINK, Calls, Evidence, Family, Hint, ReasoningMarkers, Summary, hints
from ..notations import keyed, plain_json

GRANITE = Family(
    name="granite",
    summary=Summary("`<think>…</think>`", "`<|tool_call|>` and a JSON list, or as `qwen`"),
    hints=hints("<|start_of_role|>"),
    reasoning=THINK,
    calls=Calls(
        openings=("<|tool_call|>", "<tool_call>"),
        notations=(plain_json,),
        closings=("</tool_call>",),
    ),
    wrappers=("<response>", "</response>"),
    syntaxes=(("<|tool_call|>", json_list("<|tool_call|>")), ("", JSON_IN_TAGS)),
)

PHI = Family(
    name="phi",
    summary=Summary("`<think>…</think>`", "`<|tool_call|>` or `functools` and a JSON list"),
    hints=(
        Hint(("<|tool_call|>",), Evidence.STRONG),
        Hint(("<|assistant|>", "<|user|>", "<|end|>"), Evidence.STRONG),
        Hint(("<|im_sep|>",), Evidence.STRONG),
    ),
    reasoning=THINK,
    calls=Calls(
        openings=("<|tool_call|>", "functools"),
        notations=(plain_json,),
        closings=("<|/tool_call|>",),
    ),
    syntaxes=(("", json_list("<|tool_call|>", "<|/tool_call|>")),),
)

NEMOTRON = Family(
    name="nemotron",
    summary=Summary("`<think>…</think>`", "`<TOOLCALL>` around a JSON list"),
    hints=hints("<TOOLCALL>"),
    reasoning=THINK,
    calls=Calls(("<TOOLCALL>",), (plain_json,), ("</TOOLCALL>",)),
    syntaxes=(("", json_list("<TOOLCALL>", "</TOOLCALL>")),),
)

APERTUS = Family(
    name="apertus",
    summary=Summary("`<|inner_prefix|>…`", '`<|tools_prefix|>[{"name": {…}}]<|tools_suffix|>`'),
    hints=hints("<|tools_prefix|>"),
    reasoning=ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>"),
    calls=Calls(("<|tools_prefix|>",), (keyed,), ("<|tools_suffix|>",)),
    syntaxes=(("", json_list("<|tools_prefix|>", "<|tools_suffix|>", begin='{"NAME": ')),),
)

APRIEL = Family(
    name="apriel",
    summary=Summary("up to `[BEGIN FINAL RESPONSE]`", "`<tool_calls>` around a JSON list"),
    hints=hints("[BEGIN FINAL RESPONSE]"),
    reasoning=ReasoningMarkers("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
    wrappers=("[END FINAL RESPONSE]",),
    syntaxes=(("", json_list("<tool_calls>", "</tool_calls>")),),
)

GIGACHAT = Family(
    name="gigachat",
    summary=Summary("none", "`<|function_call|>` or `function call<|role_sep|>` and JSON"),
    hints=(Hint(("<|role_sep|>", "<|message_sep|>")),),
    calls=Calls(
        ("<|function_call|>", "function call<|role_sep|>"),
        (plain_json,),
        inner=("<|role_sep|>",),
    ),
    wrappers=("<|message_sep|>",),
    syntaxes=(
        (
            "<|function_call|>",
            CallSyntax(
                '<|function_call|>{"name": "NAME", "arguments": ',
                "}",
                opening="<|function_call|>",
            ),
        ),
        (
            "",
            CallSyntax(
                '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "NAME", "arguments": ',
                "}",
                opening="<|message_sep|>",
            ),
        ),
    ),
)
