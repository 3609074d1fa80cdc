"""A function's name, then its arguments: Functionary and Solar as JSON, LFM in Python."""

from ..call_syntax import CallSyntax, Members
from ..family import THINK, Calls, Evidence, Family, ReasoningMarkers, Summary, hints
from ..notations import known, named, plain_json, python

FUNCTIONARY = Family(
    name="functionary",
    summary=Summary("none", "`<function=name>` and JSON"),
    hints=hints("<{start_tag}=", evidence=Evidence.WEAK),
    calls=Calls(("<function=",), (named(r"(?P<name>[\w.:-]+)>"),), ("</function>",)),
    syntaxes=(
        (
            "",
            CallSyntax(
                "<function=NAME>", "</function>", between="", opening="<function=", is_quoted=False
            ),
        ),
    ),
)

FUNCTIONARY_3_2 = Family(
    name="functionary-v3.2",
    summary=Summary("none", "`>>>name` and JSON; content after `>>>all`"),
    hints=hints(">>>all", evidence=Evidence.WEAK),
    wrappers=(">>>",),
    openers=("all\n",),
    bare=(known,),
    syntaxes=(("", CallSyntax("NAME\n", between=">>>", is_quoted=False, text=r"all\n(.|\n)*")),),
)

SOLAR = Family(
    name="solar",
    summary=Summary("`<|think|>…<|end|>`", "`<|tool_call:begin|>id`, a marker, a name and JSON"),
    hints=hints("<|tool_call:begin|>"),
    reasoning=ReasoningMarkers("<|think|>", "<|end|>"),
    calls=Calls(
        openings=("<|tool_call:begin|>",),
        notations=(
            named(r"(?P<id>[\w.:-]*)<\|tool_call:name\|>(?P<name>[\w.:-]+)<\|tool_call:args\|>"),
        ),
        closings=("<|tool_call:end|>",),
        wrappers=("<|tool_calls|>", "<|calls|>"),
        inner=("<|tool_call:name|>", "<|tool_call:args|>"),
    ),
    wrappers=("<|begin|>assistant", "<|content|>", "<|end|>"),
    inner=("<|begin|>",),
    syntaxes=(
        (
            "",
            CallSyntax(
                "<|tool_call:begin|>NUMBER<|tool_call:name|>NAME<|tool_call:args|>",
                "<|tool_call:end|>",
                between="",
                before="<|tool_calls|>",
                after="<|calls|>",
                opening="<|tool_calls|>",
                is_quoted=False,
            ),
        ),
    ),
)

LFM = Family(
    name="lfm",
    summary=Summary("`<think>…</think>`", "`<|tool_call_start|>` around Python's calls, or JSON"),
    hints=hints("<|tool_call_start|>", "<|tool_list_start|>", "List of tools: ["),
    reasoning=THINK,
    calls=Calls(("<|tool_call_start|>",), (plain_json, python), ("<|tool_call_end|>",)),
    syntaxes=(
        (
            "",
            CallSyntax(
                "NAME(",
                ")",
                between=", ",
                before="<|tool_call_start|>[",
                after="]<|tool_call_end|>",
                opening="<|tool_call_start|>",
                is_quoted=False,
                arguments=Members("KEY=", between=", ", key=r"[\w.-]+"),
            ),
        ),
    ),
)
