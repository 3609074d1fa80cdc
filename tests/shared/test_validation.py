"""Findings become one sentence that names the field and says what would be right."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from arriero.shared.errors import InvalidRequest
from arriero.shared.validation import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_ECHO,
    MAX_FINDINGS,
    Problem,
    all_problems,
    echo,
    parse_json,
    requirement,
)

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Circle:
    __pydantic_config__ = STRICT
    shape: Literal["circle"]
    radius: Annotated[float, Field(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Square:
    __pydantic_config__ = STRICT
    shape: Literal["square"]
    side: float


@dataclass(frozen=True, kw_only=True)
class Drawing:
    __pydantic_config__ = STRICT
    title: str | tuple[str, ...] | None = None
    layers: Annotated[tuple[str | Circle, ...], Field(min_length=1, max_length=3)] | None = None
    tagged: Annotated[Circle | Square, Field(discriminator="shape")] | None = None
    count: Annotated[int, Field(ge=1, lt=2**31)] = 1
    opacity: Annotated[float, Field(ge=-2, le=2)] = 1.0
    visible: bool = True
    name: Annotated[str, Field(min_length=1, max_length=8)] = "x"
    weights: Annotated[dict[str, float], Field(max_length=2)] = field(default_factory=dict)


DRAWING = TypeAdapter(Drawing)


def complaint(body: str | bytes) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        parse_json(DRAWING, body)
    return caught.value.message, caught.value.field


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        ('{"count": "1"}', '`count` must be a whole number, not "1"', "count"),
        ('{"count": 1.5}', "`count` must be a whole number, not 1.5", "count"),
        ('{"count": 0}', "`count` must be at least 1, not 0", "count"),
        (
            '{"count": 2147483648}',
            "`count` must be less than 2147483648, not 2147483648",
            "count",
        ),
        ('{"opacity": -3}', "`opacity` must be at least -2, not -3", "opacity"),
        ('{"opacity": 2.5}', "`opacity` must be at most 2, not 2.5", "opacity"),
        ('{"opacity": NaN}', "`opacity` must be a finite number, not NaN", "opacity"),
        ('{"opacity": -Infinity}', "`opacity` must be a finite number, not -Infinity", "opacity"),
        ('{"opacity": "1"}', '`opacity` must be a number, not "1"', "opacity"),
        ('{"visible": 1}', "`visible` must be true or false, not 1", "visible"),
        ('{"name": ""}', '`name` must have at least one character, not ""', "name"),
        (
            '{"name": "more than 8"}',
            '`name` must have at most 8 characters, not "more than 8"',
            "name",
        ),
        ('{"layers": []}', "`layers` must have at least one entry, not []", "layers"),
        ('{"layers": 1}', "`layers` must be a list, not 1", "layers"),
        ('{"weights": []}', "`weights` must be an object, not []", "weights"),
        ('{"weights": {"a b": 0, "c": "d"}}', '`weights.c` must be a number, not "d"', "weights.c"),
        (
            '{"weights": {"a b": "d"}}',
            '`weights["a b"]` must be a number, not "d"',
            'weights["a b"]',
        ),
        ('{"colour": 1}', "unknown field `colour`", "colour"),
        ("[]", "the body must be an object", None),
        ("null", "the body must be an object", None),
    ],
)
def test_sentences(body: str, message: str, field: str | None) -> None:
    assert complaint(body) == (message, field)


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        ('{"title": 1}', "`title` must be a string or a list, not 1", "title"),
        ('{"title": ["a", 1]}', "`title[1]` must be a string, not 1", "title[1]"),
        (
            '{"layers": [{"shape": "circle", "radius": 0}]}',
            "`layers[0].radius` must be more than 0, not 0",
            "layers[0].radius",
        ),
        (
            '{"layers": [{"shape": "circle"}]}',
            "`layers[0].radius` is missing",
            "layers[0].radius",
        ),
        (
            '{"tagged": {"shape": "square", "side": "x"}}',
            '`tagged.side` must be a number, not "x"',
            "tagged.side",
        ),
        ('{"tagged": {"shape": "square"}}', "`tagged.side` is missing", "tagged.side"),
        (
            '{"tagged": {"shape": "blob"}}',
            "`tagged.shape` must be 'circle' or 'square', not \"blob\"",
            "tagged.shape",
        ),
        (
            '{"tagged": {"side": 1}}',
            "`tagged.shape` is missing",
            "tagged.shape",
        ),
        ('{"tagged": 1}', "`tagged` must be an object, not 1", "tagged"),
    ],
)
def test_a_field_in_a_union_is_named_as_it_stands_in_the_body(
    body: str, message: str, field: str
) -> None:
    assert complaint(body) == (message, field)


@pytest.mark.parametrize("body", ["", "{", "nope", b"\xff", '{"name": "\\ud800"}'])
def test_what_is_no_json(body: str | bytes) -> None:
    message, field = complaint(body)
    assert message.startswith("the body is not valid JSON: ")
    assert field is None


@pytest.mark.parametrize(
    ("body", "fits", "limit"),
    [
        ("[" * 5000, "[" * MAX_DEPTH + "]" * MAX_DEPTH, "200 levels of lists and objects"),
        ("9" * 5000, "9" * MAX_DIGITS, "a number of more than 4300 digits"),
    ],
)
def test_what_the_parser_does_not_read_is_told_with_its_limit(
    body: str, fits: str, limit: str
) -> None:
    message, _ = complaint(body)
    assert limit in message
    assert "which is the limit, at line 1 column " in message
    assert "limit" not in complaint(fits)[0]


def test_bounds_are_written_as_whole_as_they_are() -> None:
    class Body(BaseModel):
        seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
        share: Annotated[float, Field(le=1.5)] = 0.0

    def message(body: str) -> str:
        with pytest.raises(InvalidRequest) as caught:
            parse_json(TypeAdapter(Body), body)
        return caught.value.message

    least, most = -9223372036854775808, 9223372036854775808
    assert message(f'{{"seed": {least - 1}}}').startswith(f"`seed` must be at least {least}, not")
    assert message(f'{{"seed": {most}}}').startswith(f"`seed` must be less than {most}, not")
    assert message('{"seed": 1, "share": 2}').startswith("`share` must be at most 1.5, not")


def test_of_a_union_only_the_branch_that_fits_is_spoken_of() -> None:
    text, ids = Annotated[str, Field(min_length=1)], Annotated[tuple[int, ...], Field(min_length=1)]
    adapter = TypeAdapter[object](text | ids)
    for body, rule in (('""', "one character"), ("[]", "one entry")):
        with pytest.raises(InvalidRequest) as caught:
            parse_json(adapter, body)
        assert caught.value.message == f"the body must have at least {rule}"


def test_long_values_and_names_are_cut() -> None:
    message, _ = complaint('{"count": "%s"}' % ("x" * 100_000))
    assert len(message) < 150
    message, field = complaint('{"%s": 1}' % ("x" * 100_000))
    assert len(message) < 150
    assert field is not None
    assert len(field) < 100


def test_an_integer_python_would_not_print_is_answered_too() -> None:
    assert complaint('{"count": %s}' % ("9" * 5000))[0]


def test_a_right_body_is_parsed() -> None:
    assert parse_json(DRAWING, b'{"count": 3}') == Drawing(count=3)


def test_our_own_sentences_stand_as_they_are() -> None:
    def refuse(_value: object) -> object:
        raise ValueError("give exactly one of `a` and `b`")

    with pytest.raises(InvalidRequest, match=r"^give exactly one of `a` and `b`$"):
        parse_json(TypeAdapter(Annotated[int, AfterValidator(refuse)]), "1")


def test_requirements_of_kinds_without_a_sentence_are_pydantics() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Annotated[int, Field(multiple_of=3)]).validate_python(4)
    assert requirement(caught.value.errors()[0]) == "Input should be a multiple of 3"


def test_echo_is_json_and_short() -> None:
    assert echo({"a": [None, "ü"]}) == '{"a": [null, "ü"]}'
    assert len(echo("x" * 1000)) == MAX_ECHO


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["shape", "radius", "side", "str", "0"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)
names = st.sampled_from(["title", "layers", "tagged", "count", "opacity", "weights", "other"])


@given(st.dictionaries(names, values, max_size=2))
def test_any_body_is_parsed_or_answered_in_one_short_line(body: dict[str, object]) -> None:
    try:
        parse_json(DRAWING, json.dumps(body))
    except InvalidRequest as error:
        assert error.message
        assert "\n" not in error.message
        assert len(error.message) < 300
        assert "Input should" not in error.message


@given(st.binary(max_size=40))
def test_any_bytes_are_parsed_or_answered(body: bytes) -> None:
    try:
        parse_json(DRAWING, body)
    except InvalidRequest as error:
        assert error.message


def test_a_large_value_is_not_written_out_for_its_beginning() -> None:
    class Unwritable:
        def __str__(self) -> str:
            raise AssertionError("what is cut off need not be written")

    assert echo([*range(100), Unwritable()]).endswith("…")


def test_an_object_with_many_wrong_members_is_answered_without_a_finding_for_each() -> None:
    body = json.dumps({f"x{number}": 1 for number in range(MAX_FINDINGS + 1)})
    assert complaint(body) == ("257 fields of the body are unknown or wrong", None)
    body = json.dumps({f"x{number}": 1 for number in range(MAX_FINDINGS)})
    assert complaint(body) == ("unknown field `x0`", "x0")


def problems_of(body: str) -> tuple[Problem, ...]:
    with pytest.raises(ValidationError) as caught:
        DRAWING.validate_json(body)
    return all_problems(caught.value, body)


def test_all_problems_are_named_each_once() -> None:
    assert problems_of('{"count": 0, "title": 3, "layers": [{"shape": "circle"}], "x": 1}') == (
        Problem("title", "`title` must be a string or a list, not 3"),
        Problem("layers[0].radius", "`layers[0].radius` is missing"),
        Problem("count", "`count` must be at least 1, not 0"),
        Problem("x", "unknown field `x`"),
    )


def test_of_what_is_no_json_there_is_one_problem() -> None:
    [problem] = problems_of("{")
    assert problem.sentence.startswith("the body is not valid JSON: EOF")


def test_too_many_problems_are_counted() -> None:
    [problem] = problems_of(json.dumps({f"x{number}": 1 for number in range(MAX_FINDINGS + 1)}))
    assert problem == Problem(None, "257 fields of the body are unknown or wrong")
