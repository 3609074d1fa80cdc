"""MiniMax: JSON of M1, tags of M2; the calls of M3 are not read."""

from ...parsing.tagged_calls import Tags
from ..call_syntax import CallSyntax, tagged_members
from ..family import THINK, Calls, Evidence, Family, ReasoningMarkers, Summary, hints
from ..notations import plain_json, tagged

INVOKE_TAGS = Tags("", '">', '<parameter name="', '">', "", "</parameter>", "</invoke>")

MINIMAX = Family(
    name="minimax",
    summary=Summary("`<think>…</think>`", '`<invoke name="…"><parameter name="…">`'),
    hints=hints("<minimax:tool_call>"),
    reasoning=THINK,
    calls=Calls(
        openings=('<invoke name="',),
        notations=(tagged(INVOKE_TAGS),),
        wrappers=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    syntaxes=(
        (
            "",
            CallSyntax(
                '<invoke name="NAME">\n',
                "</invoke>\n",
                between="",
                before="<minimax:tool_call>\n",
                after="</minimax:tool_call>",
                opening="<minimax:tool_call>",
                is_quoted=False,
                arguments=tagged_members(INVOKE_TAGS, after="\n"),
            ),
        ),
    ),
)

MINIMAX_M1 = Family(
    name="minimax-m1",
    summary=Summary("`<think>…</think>`", "`<tool_calls>` around JSON"),
    hints=hints("<tool_calls>", evidence=Evidence.WEAK),
    reasoning=THINK,
    calls=Calls(("<tool_calls>",), (plain_json,), ("</tool_calls>",)),
    syntaxes=(
        (
            "",
            CallSyntax(
                '{"name": "NAME", "arguments": ',
                "}\n",
                between="",
                before="<tool_calls>\n",
                after="</tool_calls>",
                opening="<tool_calls>",
            ),
        ),
    ),
)

MINIMAX_M3 = Family(
    name="minimax-m3",
    summary=Summary("`<mm:think>…</mm:think>`", "not read: it stays content"),
    hints=hints("<mm:think>"),
    reasoning=ReasoningMarkers("<mm:think>", "</mm:think>"),
)
