"""What a response in the background needs when it is picked up at another run of the balancer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pydantic import TypeAdapter

from .....shared.inference import RequestId, UsedTier
from ....fleet.runtime.kept_request import KeptRequest
from ...conversation_store import Keeping
from .answer import Answer
from .requests import Wanted, parse_response
from .stored import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    body: str
    served: str
    service_tier: UsedTier = "default"
    previous: Stored | None = None


_note = TypeAdapter(_Note)


def note_of(wanted: Wanted, previous: Stored | None, served: str, service_tier: UsedTier) -> bytes:
    """As it is kept with the request. `served` is the model that answers."""
    note = _Note(
        body=wanted.raw.decode(), served=served, service_tier=service_tier, previous=previous
    )
    return _note.dump_json(note)


def answers_of(kept: KeptRequest, store: Keeping) -> Callable[[], Answer]:
    """Makes what renders the response. Raises `ValueError` for a note that is not readable."""
    note = _note.validate_json(kept.note)
    return partial(
        answer_to,
        kept.id,
        store,
        parse_response(note.body.encode()),
        note.previous,
        served=note.served,
        service_tier=note.service_tier,
        created_at=kept.record.created_at,
        owner=kept.record.key.owner,
    )


def answer_to(
    id: RequestId,
    store: Keeping,
    wanted: Wanted,
    previous: Stored | None,
    *,
    served: str,
    service_tier: UsedTier,
    created_at: float,
    owner: str | None,
) -> Answer:
    """What renders a response that was asked for at `created_at`, in seconds since 1970."""
    return Answer(
        id,
        store,
        wanted,
        previous,
        served=served,
        service_tier=service_tier,
        created_at=int(created_at),
        owner=owner,
    )
