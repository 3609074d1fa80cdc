"""Notifications and letters between balancers over one store.

`Changed` names what to read from the store. It holds nothing secret and gives nobody a right, since
whoever may connect to a PostgreSQL may hear it and send it. All others are letters: they ask for
something, or answer. They lie in a table, which only those can read and write who could change
keys, too. What this version does not know is left out, so that neighbouring versions go together.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from ...shared.strict import LAZY

Subject = Literal[
    "mail", "cancels", "batches", "desired_state", "keys", "sessions", "cordons", "diary", "peers"
]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

MOST_ID = 200
"""Most characters of an id in a letter."""

MOST_TEXT = 384_000
"""Most characters of a question or of an answer; all of them are ASCII."""

Id = Annotated[str, Field(min_length=1, max_length=MOST_ID)]
Text = Annotated[str, Field(max_length=MOST_TEXT, pattern=r"^[\x20-\x7e]*\z")]


@dataclass(frozen=True, slots=True)
class Changed:
    """This has changed: read it. `peers`: a balancer went, in good order; `mail`: letters came;
    `cancels`: retained requests are to be cancelled where they run; `batches`: a batch is."""

    what: Subject
    type: Literal["changed"] = "changed"


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The balancer that has this request cancels it."""

    id: Id
    type: Literal["cancel_request"] = "cancel_request"


@dataclass(frozen=True, slots=True)
class RetryAgent:
    """The balancer that leads lets this agent try again what it failed to do."""

    agent: Id
    type: Literal["retry_agent"] = "retry_agent"


@dataclass(frozen=True, slots=True)
class Asked:
    """All but the run `by`: answer this question; `about` is JSON of what is asked."""

    id: Id
    by: Id
    what: Id
    about: Text = "{}"
    type: Literal["asked"] = "asked"


@dataclass(frozen=True, slots=True)
class Answered:
    """The run `to`: this is what the run `by` answers."""

    id: Id
    to: Id
    by: Id
    text: Text
    type: Literal["answered"] = "answered"


Broadcast = Changed | CancelRequest | RetryAgent
"""To all, without an answer."""

Letter = CancelRequest | RetryAgent | Asked | Answered

Notification = Changed | Letter

_NOTIFICATION: TypeAdapter[Notification] = TypeAdapter(
    Annotated[Notification, Field(discriminator="type")], config=LAZY
)


def encoded(notification: Notification) -> str:
    """The text of a notification, which `decoded` reads."""
    return _NOTIFICATION.dump_json(notification).decode()


def decoded(text: str) -> Notification | None:
    """`None` for what this version does not know."""
    try:
        return _NOTIFICATION.validate_json(text)
    except ValidationError:
        return None
