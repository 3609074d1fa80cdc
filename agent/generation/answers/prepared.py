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
    """How to separate an answer's reasoning and calls from its content.

    `is_thinking`: the prompt ends inside reasoning. Without `tools` there are no calls. `shown` are
    the control tokens among the family's markers, with their text.
    """

    family: Family
    is_thinking: bool
    tools: Tools | None
    shown: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Echo:
    """Send the prompt back with log-probabilities. `text` is the client's, if it gave text."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The `sequence` is for the engine; all else is for the answer.

    Without a `parsing` the answer is plain text. `notices` are for the client. An `echo` comes
    before the answer. With a `schema` the content is checked against it at the end. `num_more`:
    another model began the answer; the client was sent its part, which has so many tokens
    fewer in this model.
    """

    sequence: NewSequence
    stop: Stops
    notices: tuple[Notice, ...] = ()
    parsing: Parsing | None = None
    echo: Echo | None = None
    schema: Mapping[str, Any] | None = None
    num_more: int = 0
