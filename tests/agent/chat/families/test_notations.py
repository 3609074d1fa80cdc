import pytest

from arriero.agent.chat.families import notations
from arriero.agent.chat.families.notations import Notation
from arriero.agent.chat.parsing.reader import Reader
from arriero.agent.chat.parsing.tagged_calls import Tags
from tests.agent.chat.recorded import call
from tests.agent.chat.telling import TOOLS, parsed

TAGS = Tags("", ">", "<arg ", ">", "", "</arg>", "</call>")


@pytest.mark.parametrize(
    ("notation", "text", "arguments"),
    [
        (notations.plain_json, '{"name": "now", "arguments": {}}', "{}"),
        (notations.json_of_known, '{"name": "now", "arguments": {}}', "{}"),
        (notations.keyed, '{"now": {}}', "{}"),
        (notations.python, "now()", "{}"),
        (notations.gemma, "call:now{}", "{}"),
        (notations.named(r"(?P<name>\w+):"), "now:{}", "{}"),
        (notations.known, "now {}", "{}"),
        (notations.tagged(TAGS), "now><arg a>1</arg></call>", '{"a": "1"}'),
    ],
)
def test_reads_a_call(notation: Notation, text: str, arguments: str) -> None:
    reader = Reader()
    assert parsed(notation(reader, TOOLS), reader, text) == (True, call("now", arguments), "")


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (notations.json_of_known, '{"name": "unknown", "arguments": {}}'),
        (notations.known, "unknown {}"),
    ],
)
def test_what_has_no_marker_must_be_known(notation: Notation, text: str) -> None:
    reader = Reader()
    assert parsed(notation(reader, TOOLS), reader, text) == (False, [], text)
