"""Kimi: JSON calls of K2, tags of K3."""

from ...parsing.tagged_calls import Tags
from ..call_syntax import CallSyntax, tagged_members
from ..family import THINK, Calls, Family, Hint, ReasoningMarkers, Summary, hints
from ..notations import named, tagged

KIMI = Family(
    name="kimi",
    summary=Summary(
        "`<think>…</think>`", "`<|tool_call_begin|>functions.name:0`, a marker and JSON"
    ),
    hints=hints("<|tool_calls_section_begin|>", "<|im_middle|>"),
    reasoning=THINK,
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
    syntaxes=(
        (
            "",
            CallSyntax(
                "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                between="",
                before="<|tool_calls_section_begin|>",
                after="<|tool_calls_section_end|>",
                opening="<|tool_calls_section_begin|>",
                is_quoted=False,
            ),
        ),
    ),
)

K3_TAGS = Tags(
    "",
    '" index="',
    '<|open|>argument key="',
    '"<|sep|>',
    "",
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    number_end='"<|sep|>',
    typed_key_ends=tuple(
        (f'" type="{name}"<|sep|>', name == "string")
        for name in ("string", "number", "integer", "boolean", "array", "object", "null")
    ),
)

KIMI_K3 = Family(
    name="kimi-k3",
    summary=Summary("`<|open|>think<|sep|>…`", '`<|open|>call tool="…" index="1"<|sep|>`'),
    hints=(Hint(("<|open|>", "<|close|>", "<|sep|>")),),
    reasoning=ReasoningMarkers("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    calls=Calls(
        openings=('<|open|>call tool="',),
        notations=(tagged(K3_TAGS),),
        wrappers=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    wrappers=(
        *("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        "<|close|>message<|sep|>",
    ),
    inner=("<|open|>", "<|close|>", "<|sep|>"),
    syntaxes=(
        (
            "",
            CallSyntax(
                '<|open|>call tool="NAME" index="NUMBER"<|sep|>',
                "<|close|>call<|sep|>",
                between="",
                before="<|open|>tools<|sep|>",
                after="<|close|>tools<|sep|><|close|>message<|sep|>",
                opening="<|open|>tools<|sep|>",
                is_quoted=False,
                arguments=tagged_members(
                    K3_TAGS, key_end='" type="TYPE"<|sep|>', types={"integer": "number"}
                ),
            ),
        ),
    ),
)
