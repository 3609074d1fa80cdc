"""A grammar in llguidance's notation, put together piece by piece.

The dialect of Lark is described at
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. A rule is a name for an
expression; control tokens, which have no text, are named by their number.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llguidance import regex_to_lark

_WHITE_SPACE = r"[ ]|\n[ \t]{0,40}"
"""Between the parts of JSON: as people write it. Models that may write any never come to an end."""


class Lark:
    """`control` are the numbers of the control tokens whose names may stand in literals."""

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control
        self._in_literal = re.compile("|".join(map(re.escape, control)) or "(?!)")
        self._rules = [r"TEXT: /(.|\n)*/"]
        self._parts: list[dict[str, Any]] = []

    def grammar(self, start: str) -> str:
        """All of it; an answer is what `start` describes."""
        whole = "\n".join([f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"lark_grammar": whole}, *self._parts]})

    def rule(self, expression: str, *, is_lazy: bool = False) -> str:
        """A name for `expression`. A lazy one ends as soon as it can."""
        name = f"rule{len(self._rules)}"
        self._rules.append(f"{name}{'[lazy]' if is_lazy else ''}: {expression}")
        return name

    def literal(self, text: str) -> str:
        """Exactly this text."""
        return " ".join(self._literals(text))

    def up_to(self, marker: str) -> str:
        """Any text that ends with the first `marker`."""
        if marker in self._control:
            return self.rule(f"TEXT {self.literal(marker)}")
        return self.rule(rf"/(.|\n)*/ {_quoted(marker)}", is_lazy=True)

    def regex(self, pattern: str) -> str:
        """Text that `pattern` matches as a whole."""
        return self.rule(f"/{regex_to_lark(pattern)}/")

    def json(self, schema: Mapping[str, Any], *, is_lenient: bool = False) -> str:
        """JSON that `schema` describes; lenient: as far as that can be enforced."""
        return self._part(json_part(schema, is_lenient=is_lenient))

    def lark(self, source: str) -> str:
        """What a grammar of its own describes, from its rule `start` on."""
        return self._part({"lark_grammar": source})

    def _part(self, part: dict[str, Any]) -> str:
        name = f"part{len(self._parts)}"
        self._parts.append({"name": name, **part})
        return f"@{name}"

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
    """One of llguidance's grammars, for JSON that `schema` describes."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": is_lenient}
    return {"json_schema": {**schema, "x-guidance": options}}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
