"""What preparation makes of a request: all that the engine and the answer need to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...shared.errors import RequestError
from ...shared.inference import Notice
from ..chat.calls.tools import Tools
from ..chat.families.family import Family
from ..engine.grammar.constraint import Constraint
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sampling.sampling import Sampling
from ..engine.sequence import ContextShift


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to tell an answer's reasoning and calls from its content.

    `is_thinking`: the prompt left reasoning open. Without `tools` there are no calls. `shown` are
    the control tokens that the family's markers need to see in the text, with their bytes.
    """

    family: Family
    is_thinking: bool
    tools: Tools | None
    shown: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt is told, explained; `text` is what the client gave, where it gave text."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`prompt` holds at least one token and, without a `shift`, leaves room for an answer's.

    Without a `reading` the answer is plain text. `notices` are for the client. The answer is held
    to a `constraint`. An `echo` comes before it.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    shift: ContextShift | None = None
    stored: StoredPrompt | None = None
    notices: tuple[Notice, ...] = ()
    reading: Reading | None = None
    constraint: Constraint | None = None
    echo: Echo | None = None


Outcome = Prepared | RequestError
"""What becomes of a preparation."""
