"""Mistral: calls after `[TOOL_CALLS]`."""

from ..call_syntax import CallSyntax, json_list
from ..family import Calls, Family, ReasoningMarkers, Summary, hints
from ..notations import named, plain_json

MISTRAL = Family(
    name="mistral",
    summary=Summary(
        "`[THINK]…[/THINK]`", "`[TOOL_CALLS]` and a JSON list, or `name[ARGS]` and JSON"
    ),
    hints=hints("[TOOL_CALLS]", "[THINK]", "[INST]"),
    reasoning=ReasoningMarkers("[THINK]", "[/THINK]"),
    calls=Calls(
        openings=("[TOOL_CALLS]",),
        notations=(
            plain_json,
            named(r"(?P<name>[\w.:-]+?)(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?"),
        ),
        inner=("[ARGS]", "[CALL_ID]"),
    ),
    syntaxes=(
        (
            "[ARGS]",
            CallSyntax(
                "[TOOL_CALLS]NAME[ARGS]", between="", opening="[TOOL_CALLS]", is_quoted=False
            ),
        ),
        ("", json_list("[TOOL_CALLS]")),
    ),
)
