"""Arguments one by one, told by what fits their grammar."""

from typing import Any

import pytest

from arriero.agent.chat.constraints.argument_grammar import GemmaArguments, MemberArguments
from arriero.agent.chat.constraints.lark import Lark, TooMuchWorkError
from arriero.agent.chat.constraints.schema import Schema
from arriero.agent.chat.families.call_syntax import Members
from arriero.shared.errors import InvalidRequest
from tests.agent.saying import demo_grammars, fits

PLAIN = Members("<KEY>", "</>", barred=("</>", "<x>"))
TYPED = Members("<KEY TYPE>", "</>", barred=("</>",), types={"integer": "number"})
LIST = Members("KEY=", between=", ", key=r"\w+")
TREE = {"type": "object", "properties": {"down": {"$ref": "#/$defs/tree"}}}
SOME: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": "integer", "maximum": 9},
        "u": {"enum": ["C", None]},
    },
    "required": ["n"],
}


def good_and_bad(
    schema: dict[str, Any], notation: Members | None, good: list[str], bad: list[str]
) -> None:
    lark, whole = Lark({}), Schema("tools[0]", schema, is_lenient=True)
    arguments = (
        GemmaArguments(lark, whole) if notation is None else MemberArguments(lark, whole, notation)
    )
    constraint = demo_grammars().compile(lark.grammar(f"{lark.rule(arguments.write())} /;/"))
    assert [text for text in good if not fits(constraint, f"{text};")] == []
    assert [text for text in bad if fits(constraint, f"{text};")] == []


def test_members_come_in_order_and_those_required_at_all() -> None:
    good_and_bad(
        SOME,
        PLAIN,
        good=["<n>3</>", "<s>a\n<b</><n>3</>", "<n>3</><u>C</>", "<s></><n>3</><u>null</>"],
        bad=["", "<s>a</>", "<n>10</>", "<n>3</><s>a</>", "<n>3</><n>3</>", "<n>3</><u>D</>"],
    )


def test_text_holds_nothing_that_would_end_it() -> None:
    good_and_bad(SOME, PLAIN, good=["<s>a</<n>3</><n>3</>"], bad=["<s>a<x></><n>3</>"])


def test_members_may_have_something_between() -> None:
    good_and_bad(
        SOME,
        LIST,
        good=["n=3", 's="a", n=3', 'n=3, u="C"', 's="", n=3, u=null'],
        bad=["", ", n=3", "n=3, ", "s=a, n=3", 's="a" n=3'],
    )


def test_a_notation_may_name_types() -> None:
    good_and_bad(
        {"properties": {"v": {"type": ["string", "integer"]}}},
        TYPED,
        good=["", "<v string>3</>", "<v number>3</>"],
        bad=["<v number>a</>", "<v integer>3</>", "<v>3</>"],
    )


def test_what_may_be_any_text_is_text() -> None:
    good_and_bad(
        {"properties": {"v": {"type": ["string", "null"]}}}, PLAIN, ["<v>null</>", "<v>x</>"], []
    )


def test_text_is_as_its_schema_says() -> None:
    good_and_bad(
        {"properties": {"v": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 3}}},
        PLAIN,
        good=["<v>abc</>"],
        bad=["<v></>", "<v>abca</>", "<v>d</>"],
    )


def test_gemma_sorts_and_quotes() -> None:
    quoted = '<|"|>a{:<|"|>'
    good_and_bad(
        SOME,
        None,
        good=["{n:3}", f"{{n:3,s:{quoted}}}", '{n:3,u:<|"|>C<|"|>}', "{n:3,u:null}"],
        bad=["{}", f"{{s:{quoted},n:3}}", "{n:3,s:a}", "{n:3,}", "{n:10}"],
    )


def test_gemma_writes_what_is_within_in_the_same_way() -> None:
    good_and_bad(
        {
            "properties": {
                "l": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
                "o": {"type": "object", "additionalProperties": {"type": "integer"}},
                "t": TREE,
            },
            "$defs": {"tree": TREE},
        },
        None,
        good=["{}", "{l:[true]}", "{l:[true,false],o:{a:1,b c:2}}", "{t:{down:{down:{}}}}"],
        bad=["{l:[]}", "{l:[true,true,true]}", "{o:{a:x}}", "{t:{up:{}}}"],
    )


@pytest.mark.parametrize(
    ("schema", "field", "reason"),
    [
        (
            {"properties": {"v": {"type": "string", "format": "date"}}},
            "tools[0].properties.v",
            "`format` cannot be enforced",
        ),
        ({"properties": {}, "minProperties": 1}, "tools[0]", "`minProperties` cannot be enforced"),
        ({"properties": {"v": False}, "required": ["v"]}, "tools[0].properties.v", "no notation"),
        ({"properties": {"<": {}}, "required": ["<"]}, 'tools[0].properties["<"]', "no notation"),
        ({"type": "array"}, "tools[0]", "arguments are an object"),
        ({"anyOf": [{}] * 3000}, "tools[0]", "too many"),
    ],
)
@pytest.mark.parametrize("notation", [PLAIN, None])
def test_what_cannot_be_had_is_told_with_its_place(
    schema: dict[str, Any], field: str, reason: str, notation: Members | None
) -> None:
    lark, whole = Lark({}), Schema("tools[0]", schema)
    arguments = (
        GemmaArguments(lark, whole) if notation is None else MemberArguments(lark, whole, notation)
    )
    with pytest.raises(InvalidRequest, match=reason) as caught:
        arguments.write()
    assert caught.value.field == field


def test_what_cannot_be_written_and_need_not_be_is_left_out() -> None:
    good_and_bad(
        {"properties": {"<": {}, "v": {"const": "</>"}, "n": False}}, PLAIN, [""], ["<v></>"]
    )


def test_bounds_that_no_list_keeps_leave_no_list() -> None:
    items = {"type": "array", "minItems": 2, "maxItems": 1}
    schema = {"type": "object", "properties": {"a": items}}
    good_and_bad(schema, None, good=["{}"], bad=["{a:[]}", "{a:[1]}", "{a:[1,1]}"])


def test_bounds_that_make_no_sense_are_passed_over_unless_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "minItems": "2"}}}
    good_and_bad(schema, None, good=["{a:[]}", "{a:[1]}"], bad=[])
    with pytest.raises(InvalidRequest, match="`minItems` cannot be enforced"):
        GemmaArguments(Lark({}), Schema("tools[0]", schema)).write()


def test_a_schema_that_goes_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        schema = {"type": "object", "properties": {"a": schema}}
    # Python 3.14 calls deeper, so the bound of the work comes first.
    with pytest.raises(
        (InvalidRequest, TooMuchWorkError),
        match=r"^`tools\[0\]` cannot be served: the schema is nested too deeply|too much work",
    ):
        GemmaArguments(Lark({}), Schema("tools[0]", schema)).write()
