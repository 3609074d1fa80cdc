"""A grammar in llguidance's notation, put together piece by piece.

The dialect of Lark is described at
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. A rule is a name for an
expression; control tokens, which have no text, are named by their number.
Everything that is added counts as work.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llguidance import regex_to_lark

from .work import Work

_WHITE_SPACE = r"[ ]|\n[ \t]{0,40}"
"""Between the parts of JSON: as people write it. Models that may write any never come to an end."""

_ANY = r"/(.|\n)*/"
_SIGN = re.compile("(NAME|KEY|TYPE|NUMBER|↵)")
_SIGNS = {"NUMBER": "/[0-9]{1,3}/", "↵": r"/\n{1,2}/?"}
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()/]")


class Lark:
    """`control` are the numbers of the control tokens whose names may stand in literals.

    What adds to it raises `TooMuchWorkError` when there has been enough.
    """

    def __init__(self, control: Mapping[str, int], work: Work | None = None) -> None:
        self.work = work or Work()
        self._control = control
        self._in_literal = re.compile("|".join(map(re.escape, control)) or "(?!)")
        self._rules = [f"TEXT: {_ANY}"]
        self._parts: list[dict[str, Any]] = []
        self._num_names = 0

    def grammar(self, start: str) -> str:
        """All of it; an answer is what `start` describes."""
        whole = "\n".join([f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"lark_grammar": whole}, *self._parts]})

    def rule(self, expression: str) -> str:
        """A name for `expression`."""
        name = self.name()
        self.define(name, expression)
        return name

    def name(self) -> str:
        """For a rule that will be defined later, since it leads back to itself."""
        self._num_names += 1
        return f"rule{self._num_names}"

    def define(self, name: str, expression: str) -> None:
        """What the `name` stands for."""
        self._add(f"{name}: {expression}")

    def literal(self, text: str) -> str:
        """Exactly this text."""
        return " ".join(self._literals(text)) or '""'

    def spelled(self, text: str, **words: str) -> str:
        """This text, where the capitals of `words` stand for them, and signs for what they mean.

        `NUMBER` is any number of three digits or fewer, `↵` up to two new lines.
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
        """Whether any of `text` is a control token."""
        return bool(self._in_literal.search(text))

    def up_to(self, marker: str) -> str:
        """Any text that ends with the first `marker`."""
        return self.text(without=(marker,), end=marker)

    def text(
        self,
        *,
        like: Iterable[str] = (),
        without: Iterable[str] = (),
        begins_not: str = "",
        end: str = "",
    ) -> str:
        """Text that every regular expression of `like` matches, and then `end`.

        It has none of the markers `without` in it, not even spelled out where they are control
        tokens, and does not begin with `begins_not`, nor with that after white space.
        """
        parts = [_ANY, *(f"/{regex_to_lark(each)}/" for each in like)]
        if barred := "|".join(_in_regex(each) for each in without):
            parts.append(rf"~/(.|\n)*({barred})(.|\n)*/")
        if begins_not:
            parts.append(rf"~/[ \t\n]*{_in_regex(begins_not)}(.|\n)*/")
        # What can be told only by its end has to be one piece with it.
        head, rest = self._split(end)
        name = f"TEXT{self.name()}".upper()
        self._add(f"{name}: ({' & '.join(parts)}) {_quoted(head) if head else ''}")
        return f"{name} {self.literal(rest)}" if rest else name

    def regex(self, pattern: str) -> str:
        """Text that `pattern` matches as a whole."""
        return self.rule(f"/{regex_to_lark(pattern)}/")

    def json(self, schema: Mapping[str, Any], *, is_lenient: bool = False) -> str:
        """JSON that `schema` describes; lenient: as far as that can be enforced."""
        return self._part(json_part(schema, is_lenient=is_lenient))

    def lark(self, source: str) -> str:
        """What a grammar of its own describes, from its rule `start` on."""
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
        """What is before the first control token, and the rest."""
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
    """One of llguidance's grammars, for JSON that `schema` describes."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": is_lenient}
    return {"json_schema": {**schema, "x-guidance": options}}


def _in_regex(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", r"\n")


def _quoted(text: str) -> str:
    # The one character that JSON leaves as it is, and llguidance does not take so.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
