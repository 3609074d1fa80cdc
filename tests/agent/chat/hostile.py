"""Constraints that nest, refer and repeat as nobody means it. `make search` draws them anew."""

import json
from typing import Any

from hypothesis import strategies as st

from arriero.shared.inference import (
    GbnfGrammar,
    JsonSchemaGrammar,
    LarkGrammar,
    RegexGrammar,
)

Draw = st.DrawFn

MOST = 40_000
"""Characters of a constraint; clients may send half as many again."""

TIMES = st.one_of(st.integers(1, 4), st.integers(5, 300), st.integers(300, 10_000))
COUNTS = st.sampled_from(["*", "+", "?", "{0,3}", "{1000}", "{0,99999}", "{3,}", "~2..5"])
SEPARATORS = st.sampled_from([" ", " | ", " & "])


@st.composite
def repeated(draw: Draw, of: st.SearchStrategy[str]) -> str:
    """A text over and over, around another, or beside itself."""
    inner, times, between = draw(of), draw(TIMES), draw(SEPARATORS)
    before, after = draw(st.sampled_from([("(", ")"), ("~(", ")"), ("(", ")?"), ("(a", ")*")]))
    times = min(times, MOST // (len(inner) + 5))
    if draw(st.booleans()):
        return before * times + inner + after * times
    return between.join([inner] * times)


def expressions(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        atoms,
        lambda inner: (
            st.tuples(inner, COUNTS).map("".join)
            | st.tuples(inner, SEPARATORS, inner).map("".join)
            | inner.map("({})".format)
            | inner.map("~({})".format)
            | repeated(inner)
        ),
        max_leaves=8,
    ).filter(lambda text: len(text) <= MOST)


REGEXES = expressions(
    st.sampled_from(["a", ".", r"\w", r"\d", "[a-z]", r"[^\s]", "(?i:k)", "", "^", "é", r"\p{L}"])
).map(lambda text: text.replace(" ", "").replace("~", ""))
NAMES = st.sampled_from(["r0", "r1", "r2", "T0", "T1", "T2"])
LARK_ATOMS = NAMES | st.sampled_from(['"a"', "/[a-z]/", r"/(.|\n)*/", '""', "<[7]>", "%json {}"])
GBNF_ATOMS = st.sampled_from(["r0", "r1", "r2", '"a"', "[a-z]", "[^é]", '""', r'"\x41"', "."])


@st.composite
def larks(draw: Draw) -> str:
    """Rules that refer to each other, some of them along a chain."""
    rules = [f"{name}: {draw(expressions(LARK_ATOMS))}" for name in ("r0", "r1", "r2")]
    terminals = [f"{name}: {draw(expressions(LARK_ATOMS))}" for name in ("T0", "T1", "T2")]
    name, link = draw(st.sampled_from("cC")), draw(st.sampled_from(["", "~", '"a" ', '"b" | ']))
    length = draw(TIMES) // 4
    chain = [f"{name}{n}: {link}{name}{n + 1}" for n in range(length)]
    start = draw(st.sampled_from([f"{name}0", "r0"]))
    end = f'{name}{length}: "a"'
    return "\n".join([f"start: {start}", *rules, *terminals, *chain, end])


@st.composite
def gbnfs(draw: Draw) -> str:
    rules = [f"{name} ::= {draw(expressions(GBNF_ATOMS))}" for name in ("root", "r0", "r1", "r2")]
    return "\n".join(rules).replace("~", "").replace(" & ", " ")


LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *({"type": type} for type in ("string", "integer", "number", "null", "object", "array")),
        {"$ref": "#"},
        {"$ref": "#/$defs/d0"},
        {"type": "integer", "minimum": -1e300, "maximum": 10**40},
        {"type": "number", "multipleOf": 1e-9},
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "minItems": 10**6},
        {"format": "date-time", "type": "string"},
        {"const": [[[[[{"a": "b" * 3000}]]]]]},
        True,
        False,
    ]
)


@st.composite
def wrapped(draw: Draw, of: st.SearchStrategy[Any]) -> Any:
    """A schema within another, or over and over in a list of them."""
    inner, times = draw(of), draw(TIMES)
    key = draw(st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems", "enum"]))
    single = draw(st.sampled_from(["items", "additionalProperties", "not", "if"]))
    times = min(times, MOST // (len(json.dumps(inner)) + 9))
    some = [inner] * times
    named = {f"p{n}": each for n, each in enumerate(some)}
    choices: list[Any] = [
        {key: some},
        {single: inner},
        {"type": "object", "properties": named, "required": [*named]},
        {"type": "object", "patternProperties": {draw(REGEXES): inner}},
        {"type": "string", "pattern": draw(REGEXES)},
        {"allOf": [{"type": "string", "pattern": draw(REGEXES)} for _ in range(times % 30)]},
    ]
    return draw(st.sampled_from(choices))


@st.composite
def schemas(draw: Draw) -> dict[str, Any]:
    parts = st.recursive(LEAVES, wrapped, max_leaves=4)
    inner, end, length = draw(parts), draw(parts), draw(TIMES)
    key = draw(st.sampled_from(["allOf", "anyOf"]))
    links = {
        f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}, {"title": "x"}]} for n in range(length // 2)
    }
    whole = inner if isinstance(inner, dict) else {}
    return {**whole, "$defs": {**links, f"d{length // 2}": end}}


CONSTRAINTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    REGEXES.map(lambda text: {"grammar": RegexGrammar(type="regex", pattern=text or "a")}),
    larks().map(lambda text: {"grammar": LarkGrammar(type="lark", grammar=text)}),
    gbnfs().map(lambda text: {"grammar": GbnfGrammar(type="gbnf", grammar=text)}),
    schemas().map(lambda schema: {"grammar": JsonSchemaGrammar(type="json_schema", schema=schema)}),
    schemas().map(
        lambda schema: {"tools": ({"name": "f", "parameters": schema},), "tool_choice": "required"}
    ),
)
