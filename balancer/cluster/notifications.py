"""The notifications that balancers over one store send one another.

Those of changes hold names only: a balancer that gets one reads from the store what has changed.
Questions, which need no store to be answered, come with their answers in pieces. Notifications that
this version does not know are left out, so that neighbouring versions go together.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

Subject = Literal["desired_state", "keys", "cordons", "diary", "peers"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

MOST_ID = 200
"""Most characters of an id in a notification; PostgreSQL takes less than 8000 bytes."""

MOST_TEXT = 6000
"""Most characters of a question or of a piece of an answer; all of them are ASCII."""

MOST_PIECES = 64
"""Most pieces of one answer."""

Id = Annotated[str, Field(min_length=1, max_length=MOST_ID)]
Text = Annotated[str, Field(max_length=MOST_TEXT, pattern=r"^[\x20-\x7e]*\z")]


@dataclass(frozen=True, slots=True)
class Changed:
    """This has changed: read it. `peers`: a balancer went, in good order."""

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
    """The run `to`: this is piece `number` (from 0) of `num` of what the run `by` answers."""

    id: Id
    to: Id
    by: Id
    number: Annotated[int, Field(ge=0, lt=MOST_PIECES)]
    num: Annotated[int, Field(ge=1, le=MOST_PIECES)]
    text: Text
    type: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """Who showed the token with the digest `token` to the dashboard is logged in until `until`.

    In seconds since 1970; 0 says that it has logged out. `name` and `digest` are of its key, `csrf`
    of the session, and open nothing without the token.
    """

    token: Id
    name: Annotated[str, Field(max_length=MOST_ID)]
    digest: Annotated[str, Field(max_length=MOST_ID)]
    csrf: Annotated[str, Field(max_length=MOST_ID)]
    until: float
    type: Literal["session"] = "session"


Broadcast = Changed | CancelRequest | RetryAgent
"""To all, without an answer."""

Notification = Broadcast | Asked | Answered | SessionChanged

_NOTIFICATION: TypeAdapter[Notification] = TypeAdapter(
    Annotated[Notification, Field(discriminator="type")]
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
