"""Bounds on constraints, checked before anything works on them.

llguidance recurses while it compiles. It takes 3 kB of its stack for each rule that leads to the
next one, and for each level of a JSON Schema. Its work grows with the square of repetitions.
These bounds are far above what people write, and far below what the stack of a worker
(`engine/grammar/grammar_process`) holds. What costs too much within them ends its worker.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....shared.errors import InvalidRequest
from ..parsing.schema_check import target_of

MAX_NESTED = 120
"""Levels of lists and objects in a JSON Schema. The compiler reads few more."""

MAX_CHAIN = 5000
"""Levels of a JSON Schema if what it refers to stood in the place of each reference."""

MAX_RULES = 2000
"""Rules and terminals of a grammar."""

MAX_GROUPS = 200
"""Groups of a regular expression or a grammar that stand within each other."""

MAX_REPEATED = 4000
"""Repetitions and groups of a regular expression or a grammar."""

_RULE = re.compile(r"^[ \t]*[!?]*[A-Za-z_][^\s:]*(?:[ \t]*\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\\n])*\]?", re.DOTALL)
_REPEATS = re.compile(r"[*+?{~(]")


def check_grammar(text: str, field: str) -> None:
    """Raises `InvalidRequest` if a regular expression or a grammar is beyond the bounds."""
    _check(sum(1 for _ in _RULE.finditer(text)), MAX_RULES, "rules", field)
    bare = _ESCAPE_OR_CLASS.sub("x", text)
    _check(sum(1 for _ in _REPEATS.finditer(bare)), MAX_REPEATED, "repetitions and groups", field)
    _check(_num_nested(bare), MAX_GROUPS, "groups within each other", field)


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raises `InvalidRequest` if a JSON Schema is beyond the bounds."""
    _check(_height(schema, None), MAX_NESTED, "levels", field)
    _check(_height(schema, schema), MAX_CHAIN, "levels with what its references lead to", field)
    for pattern in _patterns(schema):
        check_grammar(pattern, field)


def _check(count: int, most: int, what: str, field: str) -> None:
    if count > most:
        raise InvalidRequest(
            f"`{field}` cannot be served: it has more than {most} {what}; simplify it", field=field
        )


def _num_nested(text: str) -> int:
    """How many parentheses are open at once at most."""
    num_open = most = 0
    for found in re.finditer(r"[()]", text):
        num_open = num_open + 1 if found[0] == "(" else max(0, num_open - 1)
        most = max(most, num_open)
    return most


def _height(schema: Mapping[str, Any], root: Mapping[str, Any] | None) -> int:
    """How many lists and objects stand within each other; references are resolved in `root`.

    A reference that leads back to where it stands counts as nothing.
    """
    heights: dict[int, int] = {}
    unfinished = {id(schema): 1}
    path = [(id(schema), _within(schema, root))]
    while path:
        place, within = path[-1]
        child = next(within, None)
        if child is None:
            path.pop()
            heights[place] = height = unfinished.pop(place)
            if path:
                above = path[-1][0]
                unfinished[above] = max(unfinished[above], height + 1)
        elif id(child) in heights:
            unfinished[place] = max(unfinished[place], heights[id(child)] + 1)
        elif id(child) not in unfinished:
            unfinished[id(child)] = 1
            path.append((id(child), _within(child, root)))
    return heights[id(schema)]


def _within(part: object, root: Mapping[str, Any] | None) -> Iterator[object]:
    """The lists and objects that stand directly in `part`, and what it refers to."""
    members: Iterable[object] = part if isinstance(part, list) else ()
    if isinstance(part, Mapping):
        members = part.values()
    yield from (each for each in members if isinstance(each, list | Mapping))
    if root is not None and isinstance(part, Mapping):
        target = target_of(part.get("$ref"), root)
        if isinstance(target, Mapping):
            yield target


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    """All regular expressions, wherever they stand."""
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
            if isinstance(pattern := part.get("pattern"), str):
                yield pattern
            if isinstance(named := part.get("patternProperties"), Mapping):
                yield from named
