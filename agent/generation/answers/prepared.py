"""The result of a preparation: everything that the engine and the answer need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....shared.inference import Notice
from ...chat.families.family import Family
from ...chat.output.transcript import Stops
from ...chat.parsing.tools import Tools
from ...engine.sequence import NewSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing:
    """The way to separate an answer's reasoning and calls from its content.

    `is_thinking`: the prompt ends within reasoning. Without `tools`, calls are not parsed. `shown`
    maps the control tokens among the family's markers to their text.
    """

    family: Family
    is_thinking: bool
    tools: Tools | None
    shown: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Echo:
    """Echo the prompt with log-probabilities. `text` is the prompt if the client sent text."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A prepared request: `sequence` for the engine, all other fields for the answer.

    Without a `parsing` the answer is plain text. `notices` are for the client. An `echo` comes
    before the answer. With a `schema` the content is checked against it at the end. `num_more`: if
    another model began the answer, the number of tokens by which its count exceeds this model's
    count for the same text.
    """

    sequence: NewSequence
    stop: Stops
    notices: tuple[Notice, ...] = ()
    parsing: Parsing | None = None
    echo: Echo | None = None
    schema: Mapping[str, Any] | None = None
    num_more: int = 0
