"""Records of the last ended requests, without prompts and answers, and searches in them."""

import heapq
from collections import deque
from collections.abc import Iterable

from ..fleet.recorder import Ending
from ..store.records import MAX_ENDINGS, EndedRequest, EndingFilter, place_of

MAX_NAME = 300
MAX_MESSAGE = 1000
"""The maximum characters of a name or an error message, which may quote a client."""


class Endings:
    """The last `MAX_ENDINGS` ended requests.

    Requests that are not written to a store yet are also kept separately.
    """

    def __init__(self) -> None:
        self._kept: deque[EndedRequest] = deque(maxlen=MAX_ENDINGS)
        self._unwritten: deque[EndedRequest] = deque(maxlen=MAX_ENDINGS)

    def __len__(self) -> int:
        return len(self._kept)

    def restore(self, ended: Iterable[EndedRequest]) -> None:
        """Restore stored requests. Call this method before `add`."""
        self._kept.extend(ended)

    def add(self, ended: EndedRequest) -> None:
        """Add an ended request."""
        self._kept.append(ended)
        self._unwritten.append(ended)

    def take_unwritten(self) -> list[EndedRequest]:
        """Return the requests added since the last call."""
        taken = list(self._unwritten)
        self._unwritten.clear()
        return taken

    @property
    def unwritten(self) -> Iterable[EndedRequest]:
        """The requests added since the last call of `take_unwritten`."""
        return self._unwritten

    def choose(self, criteria: EndingFilter) -> list[EndedRequest]:
        """Return the first `limit` requests that match `criteria`, in order."""
        found: list[EndedRequest] = []
        for each in reversed(self._kept):  # as they ended, so that few have to be looked at
            if len(found) >= criteria.limit and each.ended_at < found[-1].ended_at:
                break
            if criteria.fits(each):
                found.append(each)
        return latest(found, criteria)


def latest(ended: Iterable[EndedRequest], criteria: EndingFilter) -> list[EndedRequest]:
    """Return the first `limit` requests that match `criteria`, without duplicates."""
    by_place = {place_of(each): each for each in ended if criteria.fits(each)}
    first = heapq.nsmallest(criteria.limit, by_place, key=lambda place: place.order)
    return [by_place[place] for place in first]


def ended_request(ending: Ending, at: float, balancer: str | None = None) -> EndedRequest:
    """Return the record of a request that ended at `at`.

    `balancer` is given if there are several balancers.
    """
    usage, timings = ending.usage, ending.timings
    return EndedRequest(
        id=ending.request_id,
        ended_at=at,
        kind=ending.kind,
        code=ending.code,
        caller=ending.caller.name,
        model=None if ending.model is None else ending.model[:MAX_NAME],
        agent=None if ending.agent is None else ending.agent[:MAX_NAME],
        error=None if ending.error is None else ending.error.message[:MAX_MESSAGE],
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        queue_ms=timings.queue_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
        prefill_tokens_per_second=timings.prefill_tokens_per_second,
        decode_tokens_per_second=timings.decode_tokens_per_second,
        moves=timings.moves,
        balancer=balancer,
    )
