"""The result of a preparation: everything that the engine and the answer need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....shared.inference import Notice
from ...chat.calls.tools import Tools
from ...chat.families.family import Family
from ...chat.output.transcript import Stops
from ...engine.grammar.constraint import Constraint
from ...engine.prompt import Prompt
from ...engine.prompt_store.stored_prompt import StoredPrompt
from ...engine.sampling.sampling import Sampling
from ...engine.sequence import ContextShift


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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
    """`prompt` has at least one token and, without a `shift`, leaves room for one more.

    Without a `reading` the answer is plain text. `notices` are for the client. A `constraint`
    limits the answer's tokens. An `echo` comes before the answer. `marks` are those of the
    sequence. `num_more` tokens were told of an answer that another model began, than it has here.
    """

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None
    stop: Stops
    shift: ContextShift | None = None
    stored: StoredPrompt | None = None
    notices: tuple[Notice, ...] = ()
    reading: Reading | None = None
    constraint: Constraint | None = None
    echo: Echo | None = None
    marks: tuple[tuple[int, int], ...] = ()
    num_more: int = 0
