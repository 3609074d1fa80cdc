"""An invented family, said in one record."""

from arriero.agent.chat.families.call_syntax import CallSyntax
from arriero.agent.chat.families.family import Calls, Family, ReasoningMarkers, Summary, hints
from arriero.agent.chat.families.notations import named

ZEBRA = Family(
    name="zebra",
    summary=Summary("`{{muse}}…{{/muse}}`", "`{{run}}name=` and JSON"),
    hints=hints("{{run}}"),
    reasoning=ReasoningMarkers("{{muse}}", "{{/muse}}"),
    calls=Calls(("{{run}}",), (named(r"(?P<name>\w+)="),), ("{{/run}}",)),
    syntaxes=(
        (
            "",
            CallSyntax("{{run}}NAME=", "{{/run}}", between="", opening="{{run}}", is_quoted=False),
        ),
    ),
)
