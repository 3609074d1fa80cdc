"""Asks all other balancers over the same store, and joins their answers and metrics."""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ...shared.inference import RequestId
from ..history.series import Step
from ..management.answer_types import ListedRequest
from ..management.request_filter import RequestFilter
from ..store.records import EndedRequest, EndingFilter
from . import answers
from .answers import (
    AboutFleet,
    AboutHistory,
    AboutMetrics,
    AboutRequest,
    CancelAnswer,
    EndedAnswer,
    FleetAnswer,
    HistoryAnswer,
    RequestsAnswer,
    What,
)
from .others import NO_OTHERS, Others, added_up, oldest
from .questions import Replies

LONGEST_ACCEPT = 1000
"""Maximum characters of a header that are passed on."""

Ask = Callable[[What, str], Awaitable[Replies]]
"""Asks all other balancers. It takes a second at most, and no time if there are no others."""

NotifyCancel = Callable[[RequestId], Awaitable[bool]]
"""Notifies all other balancers to cancel a request, without waiting; returns whether it could."""

OwnRequests = Callable[[], Iterable[ListedRequest]]
"""Returns this balancer's requests at the time of the call, oldest first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """Requests of all balancers, their total number, and the balancers that did not answer."""

    requests: list[ListedRequest]
    total: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundEnded:
    """Ended requests that the store does not have yet, and their total number.

    `missing` are the balancers that did not answer.
    """

    requests: tuple[EndedRequest, ...] = ()
    total: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundSteps:
    """Steps that the store does not have yet, by the counting run.

    `missing` are the balancers that did not answer.
    """

    steps: Mapping[str, list[Step]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


async def no_replies(_what: What, _about: str) -> Replies:
    """Return no replies, because there are no other balancers."""
    return Replies()


async def not_notified(_id: RequestId) -> bool:
    """Notify no balancer, because there are no others."""
    return False


class ClusterView:
    """The view over all balancers of one store; it asks the others for their parts.

    `here` gives this balancer's name; `None` while there are no others. `workers` are the
    processes behind this balancer's port, if several are configured: their names with their
    numbers, this process first.
    """

    def __init__(
        self,
        ask: Ask = no_replies,
        here: Callable[[], str | None] = lambda: None,
        notify_cancel: NotifyCancel = not_notified,
        *,
        workers: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._here = here
        self._notify_cancel = notify_cancel
        self._workers = workers or {}
        self._clock = clock

    @property
    def here(self) -> str | None:
        """Return this balancer's name, if there are others."""
        return self._here()

    async def fleet(self, limit: int = 0) -> Others:
        """Return the other balancers' parts, with at most `limit` of their requests."""
        if (here := self.here) is None:
            return NO_OTHERS
        about = answers.written(AboutFleet, AboutFleet(limit=limit))
        replies = await self._ask("fleet", about)
        fleets, missing = _understood(FleetAnswer, replies)
        return added_up(fleets, here=here, at=self._clock(), limit=limit, missing=missing)

    async def requests(
        self, chosen: RequestFilter, own: OwnRequests, total: Callable[[], int]
    ) -> Found:
        """Return the oldest matching requests of all balancers.

        `own` are this balancer's requests, out of `total` matching ones.
        """
        if self.here is None:
            return Found(list(own()), total())
        replies = await self._ask("requests", answers.written(RequestFilter, chosen))
        others, missing = _understood(RequestsAnswer, replies)
        num = total() + sum(found["total"] for _, found in others)
        return Found(oldest(own(), others, chosen.limit), num, missing)

    async def request(self, id: RequestId) -> Found:
        """Return a request that another balancer has; at most one is found."""
        if self.here is None:
            return Found([], 0)
        about = answers.written(AboutRequest, AboutRequest(id=id))
        others, missing = _understood(RequestsAnswer, await self._ask("request", about))
        return Found(oldest([], others, 1), 0, missing)

    async def ended(self, criteria: EndingFilter) -> FoundEnded:
        """Return the other balancers' ended requests that are not in the store yet."""
        if self.here is None:
            return FoundEnded()
        replies = await self._ask("ended", answers.written(EndingFilter, criteria))
        others, missing = _understood(EndedAnswer, replies)
        requests = tuple(each for _, found in others for each in found["requests"])
        return FoundEnded(requests, sum(found["total"] for _, found in others), missing)

    async def history(self, since: int) -> FoundSteps:
        """Return the other balancers' counts from `since` on that are not in the store yet."""
        if self.here is None:
            return FoundSteps()
        about = answers.written(AboutHistory, AboutHistory(since=since))
        others, missing = _understood(HistoryAnswer, await self._ask("history", about))
        return FoundSteps({found["source"]: found["steps"] for _, found in others}, missing)

    async def metrics(self, accept: str, own: bytes) -> bytes:
        """Return the metrics of all processes behind this port, in the format of `own`."""
        if not self._workers:
            return own
        text = answers.written(AboutMetrics, AboutMetrics(accept=accept[:LONGEST_ACCEPT]))
        replies = (await self._ask("metrics", text)).replies
        texts = {each.balancer: each.body.decode(errors="replace") for each in replies}
        texts[next(iter(self._workers))] = own.decode()
        by_number = {number: texts.get(name) for name, number in self._workers.items()}
        return merged(dict(sorted(by_number.items()))).encode()

    async def cancel(self, id: RequestId) -> bool:
        """Let the balancer that has this request cancel it.

        Returns whether a balancer does, or may still do so.

        Balancers that do not answer, such as balancers of an older version, are notified as well.
        """
        if self.here is None:
            return False
        about = answers.written(AboutRequest, AboutRequest(id=id))
        others, missing = _understood(CancelAnswer, await self._ask("cancel", about))
        if any(answer["is_cancelled"] for _, answer in others):
            return True
        return bool(missing) and await self._notify_cancel(id)


def _understood(kind: type[T], replies: Replies) -> tuple[list[tuple[str, T]], tuple[str, ...]]:
    """Return the answers by name, and the names of balancers whose answers cannot be read."""
    replied = [(each.balancer, answers.read(kind, each.body)) for each in replies.replies]
    known = [(name, answer) for name, answer in replied if answer is not None]
    unknown = [name for name, answer in replied if answer is None]
    return known, tuple(sorted([*replies.missing, *unknown]))


_NAME = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(\{)?")
_END = "# EOF"
_UP = (
    "# HELP arriero_worker_up 1 if the worker told its metrics.",
    "# TYPE arriero_worker_up gauge",
)


def merged(texts: Mapping[int, str | None]) -> str:
    """Return the metrics of all workers, in either text format; a text is `None` without an
    answer.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, text in texts.items():
        family, is_new = "", False
        for line in (text or "").splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                is_new = family not in heads
                heads.setdefault(family, [])
            if line.startswith("#"):
                if line != _END and is_new:
                    heads[family].append(line)
            elif line:
                samples.setdefault(family, []).append(labelled(line, worker))
    lines = [line for name, head in heads.items() for line in [*head, *samples.get(name, ())]]
    values = {worker: float(text is not None) for worker, text in texts.items()}
    up = [labelled(f"arriero_worker_up {value}", worker) for worker, value in values.items()]
    ended = any(text is not None and text.rstrip().endswith(_END) for text in texts.values())
    return "\n".join([*lines, *_UP, *up, *([_END] if ended else [])]) + "\n"


def labelled(sample: str, worker: int) -> str:
    """Return a line of a sample, with the worker as its first label."""
    found = _NAME.match(sample)
    if found is None:
        return sample
    name, has_labels = found.groups()
    rest = sample[found.end() :]
    if not has_labels:
        return f'{name}{{worker="{worker}"}}{rest}'
    comma = "" if rest.startswith("}") else ","
    return f'{name}{{worker="{worker}"{comma}{rest}'
