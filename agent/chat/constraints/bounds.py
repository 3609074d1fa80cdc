"""Limits on constraints, checked before anything else works on them.

llguidance recurses while it compiles. It takes 3 kB of its stack for each rule in a chain of
references, and for each level of a JSON Schema. Its work grows with the square of repetitions.
These limits are far above what people write, and far below what the stack of a worker process
(`engine/grammar/grammar_process`) holds. A constraint within the limits that still costs too much
ends only its worker process.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....shared.errors import InvalidRequest
from ..parsing.schema_check import target_of

MAX_NESTED = 120
"""Maximum nesting of lists and objects in a JSON Schema. The compiler reads few more."""

MAX_CHAIN = 5000
"""Maximum nesting of a JSON Schema after every reference is replaced by its target."""

MAX_RULES = 2000
"""Maximum rules and terminals of a grammar."""

MAX_GROUPS = 200
"""Maximum nesting of groups in a regular expression or a grammar."""

MAX_REPEATED = 4000
"""Maximum repetitions and groups in a regular expression or a grammar."""

_RULE = re.compile(r"^[ \t]*[!?]*[A-Za-z_][^\s:\[]*(?:[ \t]*\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\\n])*\]?", re.DOTALL)
_REPEATS = re.compile(r"[*+?{~(]")


def check_grammar(text: str, field: str) -> None:
    """Raise `InvalidRequest` if a regular expression or a grammar exceeds the limits."""
    _check(sum(1 for _ in _RULE.finditer(text)), MAX_RULES, "rules", field)
    bare = _ESCAPE_OR_CLASS.sub("x", text)
    _check(sum(1 for _ in _REPEATS.finditer(bare)), MAX_REPEATED, "repetitions and groups", field)
    _check(_num_nested(bare), MAX_GROUPS, "groups within each other", field)


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raise `InvalidRequest` if a JSON Schema exceeds the limits."""
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
    """Return the maximum number of parentheses that are open at once."""
    num_open = most = 0
    for found in re.finditer(r"[()]", text):
        num_open = num_open + 1 if found[0] == "(" else max(0, num_open - 1)
        most = max(most, num_open)
    return most


def _height(schema: Mapping[str, Any], root: Mapping[str, Any] | None) -> int:
    """Return the nesting depth of lists and objects. References are followed if `root` is given.

    A reference back to an enclosing part adds nothing.
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
    """Yield the lists and objects directly in `part`, and the target of the `$ref` of `part`."""
    members: Iterable[object] = part if isinstance(part, list) else ()
    if isinstance(part, Mapping):
        members = part.values()
    yield from (each for each in members if isinstance(each, list | Mapping))
    if root is not None and isinstance(part, Mapping):
        target = target_of(part.get("$ref"), root)
        if isinstance(target, Mapping):
            yield target


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield every regular expression in the schema, at any depth."""
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
