"""What balancers over one store tell one another.

News are small, and hold names only: who hears of a change reads it from the store. News that this
version does not know are left out, so that neighbouring versions go together.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

Subject = Literal["desired_state", "keys", "cordons", "peers"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

MOST_ID = 200
"""Most characters of an id in news; PostgreSQL takes less than 8000 bytes."""

Id = Annotated[str, Field(min_length=1, max_length=MOST_ID)]


@dataclass(frozen=True, slots=True)
class Changed:
    """This is another one now: read it. `peers`: a balancer went, in good order."""

    what: Subject
    type: Literal["changed"] = "changed"


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Whoever has this request: cancel it."""

    id: Id
    type: Literal["cancel_request"] = "cancel_request"


@dataclass(frozen=True, slots=True)
class RetryAgent:
    """Whoever leads: let this agent try again what it failed to do."""

    agent: Id
    type: Literal["retry_agent"] = "retry_agent"


News = Changed | CancelRequest | RetryAgent

_NEWS: TypeAdapter[News] = TypeAdapter(Annotated[News, Field(discriminator="type")])


def encoded(news: News) -> str:
    """As `decoded` reads it."""
    return _NEWS.dump_json(news).decode()


def decoded(text: str) -> News | None:
    """`None` for what this version does not know."""
    try:
        return _NEWS.validate_json(text)
    except ValidationError:
        return None
