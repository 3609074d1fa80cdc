"""Finds the rules of a GBNF grammar that can become terminals: regular expressions for the lexer.

llguidance's lexer is greedy: it makes each terminal as long as possible. Terminals are fast, and
any rule that is not recursive could be one. But if the text that follows the rule could also extend
the terminal (`[0-9]+ ws` before a new line), the lexer would add that text to the terminal. The
parser would never see it. Such a rule stays a rule of the parser; its parts may still be terminals,
down to single characters.

A set of characters is a bit mask over a sample: the characters that the grammar mentions, their
neighbours in Unicode, and one character that it does not mention.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import cycle

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleNode,
    RuleRefNode,
    SequenceNode,
)

Rules = Mapping[str, RuleNode]
Chars = int

MAX_WORK = 300_000
"""Maximum visits to nodes of rules, about half a second of work.

The analysis repeats its passes until nothing changes.
"""

_PER_VISIT = 8
"""Characters of the sample that can be compared in the time of one visit."""

MAX_DEPTH = 8
"""Maximum passes; each may find more rules that cannot be terminals."""

MAX_SAMPLE = 2000

_TOO_COMPLEX = "its rules refer to each other in too complex a way; write fewer or simpler rules"

_UNIT = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{1,4}|.)|.", re.DOTALL)
_UNMENTIONED = "\U0010fffd"
_CODES = range(0x110000)


class TooComplexError(ValueError):
    """The analysis of the grammar takes too much work; the message says why."""


def terminal_rules(rules: Rules) -> set[str]:
    """Return the names of the rules that can be terminals. Raises `TooComplexError`."""
    facts = _Facts(rules)
    names = {name: {each.name for each in references(rule)} for name, rule in rules.items()}
    excluded: set[str] = set()
    for _ in range(MAX_DEPTH):
        terminals = _terminals(names, excluded)
        following = facts.following([name for name in rules if name not in terminals])
        found = {name for name in terminals if facts.of[name].goes_on & following[name]}
        if not found:
            return terminals
        excluded |= found
    raise TooComplexError(_TOO_COMPLEX)


def _terminals(names: Mapping[str, set[str]], excluded: set[str]) -> set[str]:
    """Return the rules that refer only to terminals, without the `excluded` ones."""
    terminals: set[str] = set()
    while True:
        decided = terminals | excluded
        found = {name for name in names if name not in decided and names[name] <= terminals}
        if not found:
            return terminals
        terminals |= found


def references(node: ASTNode) -> Iterator[RuleRefNode]:
    """Yield all references to rules within `node`."""
    for child in node.children():
        if isinstance(child, RuleRefNode):
            yield child
        else:
            yield from references(child)


@dataclass(frozen=True, slots=True)
class _Fact:
    """The characters that can begin a node's text, and those that can extend a complete one."""

    may_be_empty: bool = False
    begins: Chars = 0
    goes_on: Chars = 0

    def then(self, other: "_Fact") -> "_Fact":
        return _Fact(
            self.may_be_empty and other.may_be_empty,
            self.begins | (other.begins if self.may_be_empty else 0),
            other.goes_on | (other.begins | self.goes_on if other.may_be_empty else 0),
        )

    def either(self, other: "_Fact") -> "_Fact":
        return _Fact(
            self.may_be_empty or other.may_be_empty,
            self.begins | other.begins,
            self.goes_on | other.goes_on,
        )


_EMPTY = _Fact(may_be_empty=True)


class _Facts:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._sample = _sample(rules.values())
        self._all = (1 << len(self._sample)) - 1
        self._matches: dict[str, Chars] = {}
        self._work = 0
        self.of = dict.fromkeys(rules, _Fact())
        for order in self._rounds(list(rules)):
            before = dict(self.of)
            for name in order:
                self.of[name] = self._fact(rules[name].alternatives)
            if self.of == before:
                break

    def following(self, names: Sequence[str]) -> dict[str, Chars]:
        """Return for each rule the characters that may follow it directly in the rules `names`."""
        following = dict.fromkeys(self._rules, 0)
        for order in self._rounds(names):
            before = dict(following)
            for name in order:
                self._follow(self._rules[name].alternatives, following[name], following)
            if following == before:
                break
        return following

    def _rounds(self, names: Sequence[str]) -> Iterator[Iterable[str]]:
        """Yield the names forward and backward in turn: few rounds suffice for sorted rules."""
        yield from cycle((names, names[::-1]))

    def _fact(self, node: ASTNode) -> _Fact:
        self._spend(1)
        match node:
            case RuleRefNode():
                return self.of[node.name]
            case LiteralNode():
                unit = _UNIT.match(node.value)
                return _Fact(begins=self._matching(_literal(unit[0]))) if unit else _EMPTY
            case RegexNode():
                return _Fact(begins=self._matching(node.rx))
            case SequenceNode():
                return reduce(_Fact.then, map(self._fact, node.nodes), _EMPTY)
            case AlternativeNode():
                return reduce(_Fact.either, map(self._fact, node.alternatives), _Fact())
            case RepetitionNode():
                once = self._fact(node.node)
                is_many = node.max_times is None or node.max_times > 1
                goes_on = once.goes_on | (once.begins if is_many else 0)
                return _Fact(node.min_times == 0 or once.may_be_empty, once.begins, goes_on)
            case _:
                raise TypeError(f"a grammar has no {type(node).__name__}")

    def _follow(self, node: ASTNode, after: Chars, following: dict[str, Chars]) -> None:
        match node:
            case RuleRefNode():
                following[node.name] |= after
            case SequenceNode():
                for child in reversed(node.nodes):
                    self._follow(child, after, following)
                    fact = self._fact(child)
                    after = fact.begins | (after if fact.may_be_empty else 0)
            case AlternativeNode():
                for child in node.alternatives:
                    self._follow(child, after, following)
            case RepetitionNode():
                self._follow(node.node, after | self._fact(node.node).begins, following)
            case _:
                pass  # no children

    def _matching(self, pattern: str) -> Chars:
        if pattern not in self._matches:
            self._spend(len(self._sample) // _PER_VISIT)
            self._matches[pattern] = self._matched(pattern)
        return self._matches[pattern]

    def _spend(self, visits: int) -> None:
        self._work += visits
        if self._work > MAX_WORK:
            raise TooComplexError(_TOO_COMPLEX)

    def _matched(self, pattern: str) -> Chars:
        try:
            compiled = re.compile(pattern)
        except re.error:
            return self._all
        return sum(1 << n for n, each in enumerate(self._sample) if compiled.fullmatch(each))


def _literal(unit: str) -> str:
    return unit if len(unit) > 1 else re.escape(unit)


def _sample(rules: Iterable[RuleNode]) -> list[str]:
    units = {unit for rule in rules for text in _texts(rule) for unit in _UNIT.findall(text)}
    found = {ord(_UNMENTIONED)}
    for code in map(ord, map(_decoded, units)):
        found |= {each for each in (code - 1, code, code + 1) if each in _CODES}
    if len(found) > MAX_SAMPLE:
        raise TooComplexError(
            f"its rules mention more than about {MAX_SAMPLE // 3} different characters"
        )
    return [chr(code) for code in sorted(found)]


def _texts(node: ASTNode) -> Iterable[str]:
    for child in node.children():
        if isinstance(child, LiteralNode):
            yield child.value
        elif isinstance(child, RegexNode):
            yield child.rx
        else:
            yield from _texts(child)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def _decoded(unit: str) -> str:
    if len(unit) == 1:
        return unit
    if unit[1] in "xu" and len(unit) > 2:
        return chr(int(unit[2:], 16))
    return _ESCAPES.get(unit[1], unit[1])
