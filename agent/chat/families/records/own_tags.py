"""Families that write arguments one by one in tags of their own: Hunyuan, Seed, MiniCPM."""

from ...parsing.tagged_calls import Tags
from ..call_syntax import CallSyntax, tagged_members
from ..family import THINK, Calls, Evidence, Family, Hint, ReasoningMarkers, Summary, hints
from ..notations import tagged

HUNYUAN_TAGS = Tags(
    "",
    "<tool_sep:opensource>",
    "<arg_key:opensource>",
    "</arg_key:opensource>",
    "<arg_value:opensource>",
    "</arg_value:opensource>",
    "</tool_call:opensource>",
)

HUNYUAN = Family(
    name="hunyuan",
    summary=Summary("`<think:opensource>…`", "as `glm`, every tag with `:opensource`"),
    hints=(Hint(("<tool_call{}>", ":opensource")), Hint(("<tool_call:opensource>",))),
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
    syntaxes=(
        (
            "",
            CallSyntax(
                "<tool_call:opensource>NAME<tool_sep:opensource>\n",
                "</tool_call:opensource>\n",
                between="",
                before="<tool_calls:opensource>\n",
                after="</tool_calls:opensource>",
                opening="<tool_calls:opensource>",
                is_quoted=False,
                arguments=tagged_members(HUNYUAN_TAGS, line="\n", after="\n"),
            ),
        ),
    ),
)

SEED_TAGS = Tags("<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>")

SEED = Family(
    name="seed",
    summary=Summary("`<seed:think>…`", "`<seed:tool_call>` around `<function=…><parameter=…>`"),
    hints=hints("<seed:tool_call>", "<seed:think>"),
    reasoning=ReasoningMarkers("<seed:think>", "</seed:think>"),
    calls=Calls(
        openings=("<seed:tool_call>",),
        notations=(tagged(SEED_TAGS),),
        closings=("</seed:tool_call>",),
    ),
    syntaxes=(
        (
            "",
            CallSyntax(
                "<seed:tool_call>\n<function=NAME>\n",
                "</function>\n</seed:tool_call>",
                between="\n",
                opening="<seed:tool_call>",
                is_quoted=False,
                arguments=tagged_members(SEED_TAGS, after="\n"),
            ),
        ),
    ),
)

PARAM_TAGS = Tags(
    *("", '">', '<param name="', '">', "", "</param>", "</function>"),
    quotes=("<![CDATA[", "]]>"),
)

MINICPM = Family(
    name="minicpm",
    summary=Summary("`<think>…</think>`", '`<function name="…"><param name="…">`'),
    hints=hints('<function name="', evidence=Evidence.WEAK),
    reasoning=THINK,
    calls=Calls(('<function name="',), (tagged(PARAM_TAGS),)),
    syntaxes=(
        (
            "",
            CallSyntax(
                '<function name="NAME">',
                "</function>",
                between="\n",
                opening='<function name="',
                is_quoted=False,
                arguments=tagged_members(PARAM_TAGS),
            ),
        ),
    ),
)
