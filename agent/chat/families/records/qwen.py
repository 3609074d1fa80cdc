"""Calls within `<tool_call>`: Qwen, Hermes and families that copy them, and GLM."""

from ...parsing.tagged_calls import Tags
from ..call_syntax import JSON_IN_TAGS, CallSyntax, tagged_members
from ..family import THINK, Calls, Evidence, Family, Hint, Summary, hints
from ..notations import plain_json, tagged

FUNCTION_TAGS = Tags(
    "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", has_lines=True
)
ARG_TAGS = Tags("", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>")

_CALLS = Calls(
    openings=("<tool_call>",),
    notations=(plain_json, tagged(FUNCTION_TAGS), tagged(ARG_TAGS)),
    closings=("</tool_call>",),
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)

QWEN = Family(
    name="qwen",
    summary=Summary(
        "`<think>…</think>`", "`<tool_call>` around JSON, or around `<function=…><parameter=…>`"
    ),
    hints=(
        Hint(("<tool_call>",), Evidence.STRONG),
        Hint(("<think>",), Evidence.REASONING),  # others that reason in the same way
    ),
    reasoning=THINK,
    calls=_CALLS,
    syntaxes=(
        (
            "<function=",
            CallSyntax(
                "<tool_call>\n<function=NAME>\n",
                "</function>\n</tool_call>",
                between="↵",
                opening="<tool_call>",
                is_quoted=False,
                arguments=tagged_members(FUNCTION_TAGS, after="\n"),
            ),
        ),
        ("", JSON_IN_TAGS),
    ),
)

GLM = Family(
    name="glm",
    summary=Summary(
        "`<think>…</think>`", "`<tool_call>name<arg_key>…</arg_key><arg_value>…</arg_value>`"
    ),
    hints=hints("<arg_key>", "[gMASK]"),
    reasoning=THINK,
    calls=_CALLS,
    syntaxes=(
        (
            "",
            CallSyntax(
                "<tool_call>NAME↵",
                "</tool_call>",
                between="↵",
                opening="<tool_call>",
                is_quoted=False,
                arguments=tagged_members(ARG_TAGS, line="↵", after="↵"),
            ),
        ),
    ),
)
