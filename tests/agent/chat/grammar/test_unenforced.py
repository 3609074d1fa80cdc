from typing import Any

from arriero.agent.chat.grammar.schema import Schema
from arriero.agent.chat.grammar.unenforced import (
    MAX_LOOKS,
    Unenforced,
    keywords_in,
    notice_of,
    places_of,
)


def test_keywords_are_read_from_warnings() -> None:
    warnings = [
        'Unimplemented keys: ["if", "not"] (2 times)',
        "oneOf not fully supported",
        "x: [1]",
    ]
    assert keywords_in(warnings) == {"if", "not"}


def test_places_are_found_and_names_of_properties_are_none() -> None:
    schema = {"properties": {"not": {"items": {"not": {}}}}, "if": {}}
    assert list(places_of(frozenset({"not", "if"}), [Schema("tools[0]", schema)])) == [
        Unenforced("tools[0]", "if"),
        Unenforced("tools[0].properties.not.items", "not"),
    ]


def test_so_much_is_looked_at_and_no_more() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_LOOKS):
        schema = {"not": {}, "items": schema}
    assert len(list(places_of(frozenset({"not"}), [Schema("x", schema)]))) < MAX_LOOKS


def test_one_notice_names_the_first_and_counts_the_rest() -> None:
    assert notice_of([]) is None
    notice = notice_of([Unenforced("a", "not"), Unenforced("b", "if")])
    assert notice is not None
    assert notice.code == "schema_not_enforced"
    assert notice.message.startswith("`a`: `not` is not enforced, and 1 more are not;")
