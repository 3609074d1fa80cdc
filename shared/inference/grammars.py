"""The grammars to which a request constrains its answer."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ..strict import STRICT

MAX_GRAMMAR = 65_536
"""Maximum characters of a grammar or a regular expression."""

GrammarText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_GRAMMAR)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaGrammar:
    """JSON that matches `schema`, with properties in the schema's order.

    Without `strict`, keywords that cannot be enforced are accepted. The answer is then checked at
    its end, and a notice says what does not match.
    """

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    schema: dict[str, Any]
    strict: Annotated[bool, Field(exclude_if=lambda is_strict: is_strict)] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GbnfGrammar:
    """A grammar in llama.cpp's GBNF notation; it starts at the rule `root`."""

    __pydantic_config__ = STRICT

    type: Literal["gbnf"]
    grammar: GrammarText


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexGrammar:
    """Text that `pattern` matches completely."""

    __pydantic_config__ = STRICT

    type: Literal["regex"]
    pattern: GrammarText


@dataclass(frozen=True, slots=True, kw_only=True)
class LarkGrammar:
    """A grammar in llguidance's dialect of Lark; it starts at the rule `start`."""

    __pydantic_config__ = STRICT

    type: Literal["lark"]
    grammar: GrammarText


def text_grammar(grammar: str) -> "GbnfGrammar | LarkGrammar":
    """Return a grammar, with its notation detected as vLLM does: only GBNF has `::=`."""
    if "::=" in grammar and not grammar.lstrip().startswith("%llguidance"):
        return GbnfGrammar(type="gbnf", grammar=grammar)
    return LarkGrammar(type="lark", grammar=grammar)


Grammar = Annotated[
    JsonSchemaGrammar | GbnfGrammar | RegexGrammar | LarkGrammar,
    Field(discriminator="type"),
]
