"""From GBNF, llama.cpp's notation for grammars, to the Lark dialect of llguidance.

llguidance first cuts a text into words and then looks at their order. A rule that does not go in
circles becomes one word, so it means exactly what it says; between others the longest word counts.
"""

from collections.abc import Iterator

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GrammarParser,
    RuleNode,
    RuleRefNode,
    SequenceNode,
    resolve,
)

MAX_RULES = 1000
MAX_DEPTH = 50
"""Parentheses within each other, those in literals counted too."""

_ROOT = "root"


class GbnfError(ValueError):
    """What is wrong and where."""


def lark_of(gbnf: str) -> str:
    """Raises `GbnfError`."""
    if _depth(gbnf) > MAX_DEPTH:
        raise GbnfError(f"it goes deeper than {MAX_DEPTH} parentheses")
    if gbnf.count("::=") > MAX_RULES:
        raise GbnfError(f"it has more than {MAX_RULES} rules")
    try:
        parsed = GrammarParser().parse(gbnf)
    except IndexError as error:
        raise GbnfError("it breaks off") from error
    except Exception as error:  # the parser's own, which derives from nothing narrower
        raise GbnfError(str(error)) from error
    rules = _numbered(parsed)
    resolve(rules)
    return "\n".join(map(str, sorted(rules.values(), key=lambda rule: rule.order)))


def _numbered(rules: dict[str, RuleNode]) -> dict[str, RuleNode]:
    """The rules under names that mean nothing in Lark, and a root that only refers to theirs."""
    names = {name: f"rule-{number}" for number, name in enumerate(rules)}
    for rule in rules.values():
        for node in _references(rule):
            node.name = _known(names, node.name)
        rule.name, rule.comment = names[rule.name], ""
    start = SequenceNode([RuleRefNode(_known(names, _ROOT))])
    root = RuleNode(_ROOT, AlternativeNode([start]), "")
    return {_ROOT: root} | {rule.name: rule for rule in rules.values()}


def _known(names: dict[str, str], name: str) -> str:
    if name not in names:
        raise GbnfError(f"there is no rule `{name}`")
    return names[name]


def _references(node: ASTNode) -> Iterator[RuleRefNode]:
    for child in node.children():
        if isinstance(child, RuleRefNode):
            yield child
        yield from _references(child)


def _depth(gbnf: str) -> int:
    depth = deepest = 0
    for character in gbnf:
        if character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    return deepest
