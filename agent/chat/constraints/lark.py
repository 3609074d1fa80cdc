"""Builds a grammar in llguidance's notation, within a work budget.

The dialect of Lark is described at
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. A rule is a named expression.
Control tokens have no text, so they are written by token id. Every addition costs work;
llguidance's compiler has limits of its own.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llguidance import regex_to_lark

from .closed_schema import closed

MAX_WORK = 1_000_000
"""Work units for one request."""

MAX_SCHEMAS = 512 * 1024
"""Maximum length of all schemas of a request together, in characters of JSON."""


class TooMuchWorkError(Exception):
    """A request's schemas exceed the work budget."""


class Work:
    """The remaining work budget of one request.

    A unit is one character written, one schema member visited, or something equally costly: about
    half a microsecond.
    """

    def __init__(self, units: int = MAX_WORK) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Spend `units` before doing the work. Raises `TooMuchWorkError`."""
        self._left -= units
        if self._left < 0:
            raise TooMuchWorkError("compiling these schemas takes too much work; simplify them")


_WHITE_SPACE = r"[ ]|\n[ \t]{0,40}"
"""White space in JSON. It is limited, since models that may write any amount might never stop."""

_ANY = r"/(.|\n)*/"
_SIGN = re.compile("(NAME|KEY|TYPE|NUMBER|↵)")
_SIGNS = {"NUMBER": "/[0-9]{1,3}/", "↵": r"/\n{1,2}/?"}
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()/]")


class Lark:
    """A grammar under construction.

    `control` has the token ids of control tokens whose texts may occur in literals. Methods that
    add to the grammar raise `TooMuchWorkError` if the `work` budget is spent.
    """

    def __init__(self, control: Mapping[str, int], work: Work | None = None) -> None:
        self.work = work or Work()
        self._control = control
        self._in_literal = re.compile("|".join(map(re.escape, control)) or "(?!)")
        self._rules = [f"TEXT: {_ANY}"]
        self._parts: list[dict[str, Any]] = []
        self._num_names = 0

    def grammar(self, start: str) -> str:
        """Return the whole grammar: an answer must match `start`."""
        whole = "\n".join([f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"lark_grammar": whole}, *self._parts]})

    def rule(self, expression: str) -> str:
        """Define a rule for `expression` and return its name."""
        name = self.name()
        self.define(name, expression)
        return name

    def name(self) -> str:
        """Return a new name, for a recursive rule that is defined later."""
        self._num_names += 1
        return f"rule{self._num_names}"

    def define(self, name: str, expression: str) -> None:
        """Define the rule `name`."""
        self._add(f"{name}: {expression}")

    def literal(self, text: str) -> str:
        """Return an expression for exactly `text`."""
        return " ".join(self._literals(text)) or '""'

    def spelled(self, text: str, **words: str) -> str:
        """Return an expression for `text` with the placeholders of `words` replaced.

        Placeholders are `NAME`, `KEY` and `TYPE`. `NUMBER` matches one to three digits, `↵` up to
        two new lines.
        """
        written, run = [], ""
        for part in _SIGN.split(text):
            if part in _SIGNS:
                written += [*self._literals(run), _SIGNS[part]]
                run = ""
            else:
                run += words.get(part, part)
        return " ".join([*written, *self._literals(run)]) or '""'

    def has_control(self, text: str) -> bool:
        """Return whether `text` contains a control token."""
        return bool(self._in_literal.search(text))

    def up_to(self, marker: str) -> str:
        """Return an expression for any text up to and including the first `marker`."""
        return self.text(without=(marker,), end=marker)

    def text(
        self,
        *,
        like: Iterable[str] = (),
        without: Iterable[str] = (),
        begins_not: str = "",
        end: str = "",
    ) -> str:
        """Return an expression for text that matches every pattern in `like`, followed by `end`.

        The text contains none of the markers `without`, not even a control token's text written as
        ordinary tokens. It does not begin with `begins_not`, even after white space.
        """
        parts = [_ANY, *(f"/{regex_to_lark(each)}/" for each in like)]
        if barred := "|".join(_in_regex(each) for each in without):
            parts.append(rf"~/(.|\n)*({barred})(.|\n)*/")
        if begins_not:
            parts.append(rf"~/[ \t\n]*{_in_regex(begins_not)}(.|\n)*/")
        # The lexer is greedy: text that only its end delimits is one terminal with that end.
        head, rest = self._split(end)
        name = f"TEXT{self.name()}".upper()
        self._add(f"{name}: ({' & '.join(parts)}) {_quoted(head) if head else ''}")
        return f"{name} {self.literal(rest)}" if rest else name

    def regex(self, pattern: str) -> str:
        """Return an expression for text that `pattern` matches as a whole."""
        return self.rule(f"/{regex_to_lark(pattern)}/")

    def json(self, schema: Mapping[str, Any], *, is_lenient: bool = False) -> str:
        """Return an expression for JSON that matches `schema`.

        If lenient, unsupported keywords are ignored.
        """
        return self._part(json_part(schema, is_lenient=is_lenient))

    def lark(self, source: str) -> str:
        """Add a nested grammar with a `start` rule of its own."""
        return self._part({"lark_grammar": source})

    def _add(self, rule: str) -> None:
        self.work.spend(len(rule))
        self._rules.append(rule)

    def _part(self, part: dict[str, Any]) -> str:
        self.work.spend(len(json.dumps(part)))
        name = f"part{len(self._parts)}"
        self._parts.append({"name": name, **part})
        return f"@{name}"

    def _split(self, text: str) -> tuple[str, str]:
        """Return the text before the first control token, and the remaining text."""
        found = self._in_literal.search(text)
        place = found.start() if found else len(text)
        return text[:place], text[place:]

    def _literals(self, text: str) -> Iterable[str]:
        start = 0
        for found in self._in_literal.finditer(text):
            if start < found.start():
                yield _quoted(text[start : found.start()])
            yield f"<[{self._control[found[0]]}]>"
            start = found.end()
        if start < len(text):
            yield _quoted(text[start:])


def json_part(schema: Mapping[str, Any], *, is_lenient: bool) -> dict[str, Any]:
    """Return llguidance's grammar for JSON that matches `schema`, with closed objects."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": is_lenient}
    return {"json_schema": {**closed(schema), "x-guidance": options}}


def _in_regex(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", r"\n")


def _quoted(text: str) -> str:
    # JSON does not escape U+007F, but llguidance requires it.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
