"""Translates GBNF, llama.cpp's grammar notation, to the Lark dialect of llguidance."""

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    GrammarParser,
    RepetitionNode,
    RuleNode,
    RuleRefNode,
    SequenceNode,
    resolve,
)

from .gbnf_terminals import TooComplexError, references, terminal_rules

MAX_RULES = 500
MAX_DEPTH = 50
"""Maximum nested parentheses, including parentheses in literals."""

_ROOT = "root"


class GbnfError(ValueError):
    """The grammar is invalid; the message says why."""


class _ParserRule(RepetitionNode):
    """A rule's body, in a wrapper that keeps the rule from becoming part of a terminal."""

    def __init__(self, rule: RuleNode) -> None:
        super().__init__(rule.alternatives, 1, 1)

    def is_terminal(self) -> bool:
        """Return `False`: the node always stays a rule."""
        return False

    def __str__(self) -> str:
        return f"({self.node})"


def lark_of(gbnf: str) -> str:
    """Return the grammar in Lark. Raises `GbnfError`."""
    if _depth(gbnf) > MAX_DEPTH:
        raise GbnfError(f"it has more than {MAX_DEPTH} nested parentheses")
    if gbnf.count("::=") > MAX_RULES:
        raise GbnfError(f"it has more than {MAX_RULES} rules")
    try:
        parsed = GrammarParser().parse(gbnf)
    except IndexError as error:
        raise GbnfError("it ends in the middle of a rule") from error
    except Exception as error:  # the parser's own error type derives from `Exception`
        raise GbnfError(str(error)) from error
    rules = _numbered(parsed)
    _mark_terminals(rules)
    resolve(rules)
    return "\n".join(map(str, sorted(rules.values(), key=lambda rule: rule.order)))


def _mark_terminals(rules: dict[str, RuleNode]) -> None:
    """Make `resolve` turn a rule into a terminal exactly if the rule can be a terminal."""
    try:
        terminals = terminal_rules(rules)
    except TooComplexError as error:
        raise GbnfError(str(error)) from error
    for name, rule in rules.items():
        rule.rule_is_terminal = name in terminals and name != _ROOT
        if name not in terminals:
            rule.alternatives = AlternativeNode([SequenceNode([_ParserRule(rule)])])


def _numbered(rules: dict[str, RuleNode]) -> dict[str, RuleNode]:
    """Return the rules under names that Lark does not reserve.

    The result has a new root that refers to the given root.
    """
    names = {name: f"rule-{number}" for number, name in enumerate(rules)}
    for rule in rules.values():
        for node in references(rule):
            node.name = _known(names, node.name)
        rule.name, rule.comment = names[rule.name], ""
    start = SequenceNode([RuleRefNode(_known(names, _ROOT))])
    root = RuleNode(_ROOT, AlternativeNode([start]), "")
    return {_ROOT: root} | {rule.name: rule for rule in rules.values()}


def _known(names: dict[str, str], name: str) -> str:
    if name not in names:
        raise GbnfError(f"there is no rule `{name}`")
    return names[name]


def _depth(gbnf: str) -> int:
    depth = deepest = 0
    for character in gbnf:
        if character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    return deepest
