"""DeepSeek: JSON calls of R1 and V3, and DSML, the tags of V3.2 and later."""

from dataclasses import replace

from ...parsing.tagged_calls import Tags
from ..call_syntax import CallSyntax, tagged_members
from ..family import THINK, Calls, Evidence, Family, Hint, Summary, hints
from ..notations import named, tagged

DSML_TAGS = Tags(
    "",
    '">',
    '<｜DSML｜parameter name="',
    '">',
    "",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    typed_key_ends=(('" string="true">', True), ('" string="false">', False)),
)

_R1 = CallSyntax(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
    "\n```<｜tool▁call▁end｜>",
    between="\n",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)
_V3_1 = CallSyntax(
    "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    between="",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)

DEEPSEEK = Family(
    name="deepseek",
    summary=Summary("`<think>…</think>`", "`<｜tool▁call▁begin｜>name<｜tool▁sep｜>` and JSON"),
    hints=(
        Hint(("<｜tool▁calls▁begin｜>",)),
        Hint(("<｜Assistant｜>",), Evidence.STRONG),
    ),
    reasoning=THINK,
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
    syntaxes=(("```json", _R1), ("", _V3_1)),
)


_DSML = CallSyntax(
    '<｜DSML｜invoke name="NAME">\n',
    "</｜DSML｜invoke>\n",
    between="",
    before="<｜DSML｜function_calls>\n",
    after="</｜DSML｜function_calls>",
    opening="<｜DSML｜function_calls>",
    is_quoted=False,
    arguments=tagged_members(
        DSML_TAGS,
        key_end='" string="TYPE">',
        after="\n",
        types={
            "string": "true",
            **dict.fromkeys(("number", "integer", "boolean", "null", "array", "object"), "false"),
        },
    ),
)
_DSML_V4 = replace(
    _DSML,
    before="<｜DSML｜tool_calls>\n",
    after="</｜DSML｜tool_calls>",
    opening="<｜DSML｜tool_calls>",
)

DSML = Family(
    name="dsml",
    summary=Summary(
        "`<think>…</think>`", '`<｜DSML｜invoke name="…"><｜DSML｜parameter name="…" string="…">`'
    ),
    hints=hints("｜DSML｜"),
    reasoning=THINK,
    calls=Calls(
        openings=('<｜DSML｜invoke name="',),
        notations=(tagged(DSML_TAGS),),
        wrappers=(
            *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
            *("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        ),
    ),
    inner=("｜DSML｜",),
    syntaxes=(("tool_calls>", _DSML_V4), ("", _DSML)),
)
