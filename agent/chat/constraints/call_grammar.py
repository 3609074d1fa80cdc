"""Grammars for calls of a request's functions, in the notation of a model family."""

import json
import re
from collections.abc import Sequence

from ....shared.errors import InvalidRequest
from ..families.call_syntax import CallSyntax, Members
from ..parsing.tools import Function
from .argument_grammar import GemmaArguments, MemberArguments
from .lark import Lark
from .schema import Schema, Unenforced

_NAME = re.compile(r"[\w.-]{1,200}")
"""Names that every family can write without quotes."""


class CallGrammar:
    """Adds rules for calls to the grammar `lark`.

    `schemas` are the parts that llguidance compiles as JSON schemas. `lenient` are the schemas of
    functions that are not strict. `unenforced` lists the keywords of lenient schemas that the
    notation cannot enforce.
    """

    def __init__(self, lark: Lark, syntax: CallSyntax, functions: Sequence[Function]) -> None:
        """Raise `InvalidRequest` for a function that cannot be called in this notation."""
        self._lark = lark
        self._syntax = syntax
        self.schemas: list[Schema] = []
        self.lenient = [schema_of(each) for each in functions if not each.is_strict]
        self.unenforced: list[Unenforced] = []
        self._bodies = [
            (function, f"{self._arguments(function)} {lark.spelled(syntax.end)}")
            for function in functions
        ]

    def calls(self, *, most: int | None, without_opening: bool = False) -> str:
        """Return an expression for one to `most` calls.

        With `without_opening`, the opening marker is already written.
        """
        lark, syntax = self._lark, self._syntax
        first = syntax.before + syntax.begin
        if without_opening:
            first = first.removeprefix(syntax.opening or "")
        more = ""
        if most != 1 and syntax.between is not None:
            times = "*" if most is None else f"{{0,{most - 1}}}"
            more = f"({lark.spelled(syntax.between)} {self._call(syntax.begin)}){times}"
        return f"{self._call(first)} {more} {lark.spelled(syntax.after)}"

    def _call(self, begin: str) -> str:
        """Return the name of a rule for one call of any of the functions."""
        return self._lark.rule(
            " | ".join(f"{self._header(begin, function)} {body}" for function, body in self._bodies)
        )

    def _header(self, begin: str, function: Function) -> str:
        name = function.name
        if self._syntax.is_quoted:
            name = json.dumps(name)[1:-1]
        elif not _NAME.fullmatch(name):
            field = function.field.removesuffix("parameters") + "name"
            raise InvalidRequest(
                f"`{field}` {name[:100]!r} cannot be written in the notation that this model "
                "writes calls in; letters, digits, `_`, `-` and `.` can",
                field=field,
            )
        return self._lark.spelled(begin, NAME=name)

    def _arguments(self, function: Function) -> str:
        schema = schema_of(function)
        match self._syntax.arguments:
            case "json":
                self.schemas.append(schema)
                return self._lark.rule(self._lark.json(schema.schema, is_lenient=schema.is_lenient))
            case "gemma":
                return self._one_by_one(GemmaArguments(self._lark, schema))
            case Members() as members:
                return self._one_by_one(MemberArguments(self._lark, schema, members))

    def _one_by_one(self, arguments: GemmaArguments | MemberArguments) -> str:
        written = arguments.write()
        self.schemas += arguments.schemas
        self.unenforced += arguments.unenforced
        return self._lark.rule(written)


def schema_of(function: Function) -> Schema:
    """Return the schema of a function's arguments; a function without parameters takes no
    arguments."""
    schema = dict(function.parameters) or {"properties": {}, "additionalProperties": False}
    if not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf"}:
        schema["type"] = "object"
    return Schema(function.field, schema, is_lenient=not function.is_strict)
