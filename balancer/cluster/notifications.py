"""Notifications and letters between balancers over one store.

`Changed` names what to read from the store. It contains nothing secret and grants nothing, because
anybody who may connect to PostgreSQL can receive and send it. All other messages are letters,
which ask or answer something. They are in a table that can be read and written only by users who
can also change keys. Unknown letters are ignored, so that neighbouring versions work together.
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
"""Maximum characters of an id in a letter."""

MOST_TEXT = 384_000
"""Maximum characters of a question or of an answer; all of them are ASCII."""

Id = Annotated[str, Field(min_length=1, max_length=MOST_ID)]
Text = Annotated[str, Field(max_length=MOST_TEXT, pattern=r"^[\x20-\x7e]*\z")]


@dataclass(frozen=True, slots=True)
class Changed:
    """A notification that `what` has changed and must be read.

    `peers`: a balancer left in good order. `mail`: letters came. `cancels`: retained requests must
    be cancelled by the balancers that run them. `batches`: a batch must be cancelled.
    """

    what: Subject
    type: Literal["changed"] = "changed"


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A letter to the balancer that has this request: cancel it."""

    id: Id
    type: Literal["cancel_request"] = "cancel_request"


@dataclass(frozen=True, slots=True)
class RetryAgent:
    """A letter to the leader: let this agent try again an order that failed."""

    agent: Id
    type: Literal["retry_agent"] = "retry_agent"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the run `by` to all others; `about` is JSON."""

    id: Id
    by: Id
    what: Id
    about: Text = "{}"
    type: Literal["asked"] = "asked"


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of the run `by` to the run `to`."""

    id: Id
    to: Id
    by: Id
    text: Text
    type: Literal["answered"] = "answered"


Broadcast = Changed | CancelRequest | RetryAgent
"""Letters to all balancers, which get no answer."""

Letter = CancelRequest | RetryAgent | Asked | Answered

Notification = Changed | Letter

_NOTIFICATION: TypeAdapter[Notification] = TypeAdapter(
    Annotated[Notification, Field(discriminator="type")], config=LAZY
)


def encoded(notification: Notification) -> str:
    """Return the text of a notification, which `decoded` reads."""
    return _NOTIFICATION.dump_json(notification).decode()


def decoded(text: str) -> Notification | None:
    """Return the notification in a text; `None` if this version does not know it."""
    try:
        return _NOTIFICATION.validate_json(text)
    except ValidationError:
        return None
