"""The last ended requests, without their texts, and which of them a reader wants."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ..fleet.recorder import Ending
from ..store.records import MAX_ENDINGS, EndedRequest

MAX_NAME = 300
MAX_MESSAGE = 1000
"""Characters that are kept of names and of an error's message, which may quote a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingFilter:
    """`None` lets everything through."""

    model: str | None = None
    agent: str | None = None
    caller: str | None = None
    code: str | None = None
    limit: int = 200

    def fits(self, ended: EndedRequest) -> bool:
        """Whether a reader wants this one."""
        return (
            self.model in (None, ended.model)
            and self.agent in (None, ended.agent)
            and self.caller in (None, ended.caller)
            and self.code in (None, ended.code)
        )


class Endings:
    """At most `MAX_ENDINGS`, and those that nobody has written to a store yet."""

    def __init__(self) -> None:
        self._kept: deque[EndedRequest] = deque(maxlen=MAX_ENDINGS)
        self._unwritten: deque[EndedRequest] = deque(maxlen=MAX_ENDINGS)

    def __len__(self) -> int:
        return len(self._kept)

    def restore(self, ended: Iterable[EndedRequest]) -> None:
        """Put back what was kept, before the first is added."""
        self._kept.extend(ended)

    def add(self, ended: EndedRequest) -> None:
        """A request has ended."""
        self._kept.append(ended)
        self._unwritten.append(ended)

    def take_unwritten(self) -> list[EndedRequest]:
        """Those that were added since the last call."""
        taken = list(self._unwritten)
        self._unwritten.clear()
        return taken

    def choose(self, wanted: EndingFilter) -> Iterator[EndedRequest]:
        """The latest `limit` of those that are wanted, latest first."""
        return islice(filter(wanted.fits, reversed(self._kept)), wanted.limit)


def ended_request(ending: Ending, at: float) -> EndedRequest:
    """What is kept of `ending`, which happened at `at`."""
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
    )
