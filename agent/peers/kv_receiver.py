"""Receives prefixes from other agents while the requests that need them wait in preparation.

Methods are called, and replies are given, on the event loop's thread. If a fetch fails, is late,
or exceeds the limits, its reply gets `None` and the prefix is computed. After a failure the peer
is not asked for a while (`Resting`).
"""

import asyncio
import logging
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...shared.inference.prefix_peers import PrefixSource
from ...shared.quantities import parse_address
from ..engine.prompt import Prompt
from ..engine.prompt_store.stored_prompt import Origin, StoredPrompt, UnusableFile, unpack
from ..thread_pool import thread_pool
from .counts import Counts
from .exchange import ExchangeError, PrefixRequest, encode, most_bytes, read_answer_head
from .wire import Wire

logger = logging.getLogger(__name__)

MAX_FETCHES = 4
"""Maximum fetches at once. While this many fetches run, other prefixes are computed."""

FIRST_REST = 5.0
"""Seconds without requests to a peer after its first failed fetch."""

LONGEST_REST = 300.0

MAX_PEERS = 1024

Reply = Callable[[StoredPrompt | None], None]


@dataclass(frozen=True, slots=True)
class _Got:
    prefix: StoredPrompt
    num_bytes: int
    seconds: float


@dataclass(slots=True, eq=False)
class _Job:
    source: PrefixSource
    prompt: Prompt
    most_bytes: int
    reply: Reply
    wire: Wire | None = None
    is_given_up: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class Resting:
    """Peers that are not asked for a while after a failure; each failure doubles the pause.

    Peers are addresses. Times are seconds of one clock. At most `MAX_PEERS` peers are remembered:
    the ones that failed last. A successful fetch ends the pauses of a peer.
    """

    def __init__(self) -> None:
        self._rests: OrderedDict[str, _Rest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rests)

    def may_ask(self, address: str, now: float) -> bool:
        """Return whether a peer may be asked now."""
        rest = self._rests.get(address)
        return rest is None or now >= rest.until

    def failed(self, address: str, now: float) -> None:
        """Note that a fetch from `address` failed."""
        before = self._rests.pop(address, None)
        seconds = FIRST_REST if before is None else min(2 * before.seconds, LONGEST_REST)
        self._rests[address] = _Rest(now + seconds, seconds)
        if len(self._rests) > MAX_PEERS:
            self._rests.popitem(last=False)

    def worked(self, address: str) -> None:
        """Note that a fetch from `address` succeeded."""
        self._rests.pop(address, None)


class KvReceiver:
    """Receives prefixes computed by `origin`, at most `most_bytes` at once.

    A token's state has `cell_bytes`; a prefix has `state_bytes` in addition. `tls` makes the
    context of each connection.
    """

    def __init__(
        self,
        *,
        origin: Origin,
        cell_bytes: int,
        state_bytes: int = 0,
        most_bytes: int,
        counts: Counts,
        tls: Callable[[], ssl.SSLContext] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = origin
        self._cell_bytes = cell_bytes
        self._state_bytes = state_bytes
        self._most_bytes = most_bytes
        self._counts = counts
        self._tls = tls
        self._clock = clock
        self._resting = Resting()
        self._threads = thread_pool(MAX_FETCHES, "fetch")
        self._jobs: dict[int, _Job] = {}
        self._running: set[_Job] = set()

    def fetch(self, id: int, source: PrefixSource, prompt: Prompt, reply: Reply) -> None:
        """Fetch a prefix of `prompt` without its last token; `reply` gets the prefix, or `None`.

        `reply` is not called after `abandon`. It may be called before this method returns.
        """
        beginning = prompt.part(0, len(prompt) - 1)
        most = most_bytes(len(beginning), self._cell_bytes, self._state_bytes)
        job = _Job(source, beginning, most, reply)
        if not self._has_place(job):
            self._counts.failed()
            reply(None)
            return
        self._jobs[id] = job
        self._running.add(job)
        job.timer = asyncio.get_running_loop().call_later(source.seconds, self._late, id)
        future = self._threads.submit(self._run, job)
        asyncio.wrap_future(future).add_done_callback(partial(self._ended, id, job))

    def abandon(self, id: int) -> None:
        """Abandon a fetch, if there is one."""
        if (job := self._jobs.pop(id, None)) is not None:
            _give_up(job)

    def close(self) -> None:
        """Start no more fetches; block until the threads have ended."""
        for job in tuple(self._running):  # the event loop forgets those that end meanwhile
            _give_up(job)
        self._threads.shutdown(cancel_futures=True)

    def _has_place(self, job: _Job) -> bool:
        in_use = sum(other.most_bytes for other in self._running)
        return (
            len(job.prompt) > 0
            and len(self._running) < MAX_FETCHES
            and in_use + job.most_bytes <= self._most_bytes
            and self._resting.may_ask(job.source.address, self._clock())
        )

    def _late(self, id: int) -> None:
        """Give up a fetch that takes longer than computing the prefix."""
        job = self._jobs.pop(id)
        _give_up(job)
        self._fails(job, "it takes too long")

    def _ended(self, id: int, job: _Job, future: "asyncio.Future[_Got | str | None]") -> None:
        self._running.discard(job)
        if job.is_given_up or future.cancelled():
            return
        del self._jobs[id]
        if job.timer is not None:
            job.timer.cancel()
        outcome = future.result()
        if isinstance(outcome, str):
            self._fails(job, outcome)
            return
        self._resting.worked(job.source.address)
        if outcome is None:
            self._counts.failed()
            job.reply(None)
            return
        self._counts.fetched(
            tokens=len(outcome.prefix.prompt), num_bytes=outcome.num_bytes, seconds=outcome.seconds
        )
        job.reply(outcome.prefix)

    def _fails(self, job: _Job, reason: str) -> None:
        address = job.source.address
        logger.warning(
            "a prefix is computed here, because the agent at %s did not send it: %s",
            address,
            reason,
        )
        self._resting.failed(address, self._clock())
        self._counts.failed()
        job.reply(None)

    # ---- on a thread

    def _run(self, job: _Job) -> _Got | str | None:
        """Fetch; return the prefix, `None` if the peer has none, or why the fetch failed."""
        try:
            return self._get(job)
        except UnusableFile as error:
            return f"what it sent {error}"
        except OSError as error:
            return str(error) or type(error).__name__
        except Exception as error:  # the boundary of a fetch: its request is computed
            logger.exception("a prefix could not be fetched")
            return f"{type(error).__name__}"

    def _get(self, job: _Job) -> _Got | None:
        began = self._clock()
        address = parse_address(job.source.address)
        seconds = job.source.seconds
        connection = socket.create_connection((address.host, address.port), timeout=seconds)
        with Wire(connection, seconds, self._clock) as wire:
            job.wire = wire
            if job.is_given_up:
                return None
            if self._tls is not None:
                context = self._tls()
                wire.upgrade(partial(context.wrap_socket, server_hostname=address.host))
            wire.write([encode(PrefixRequest(job.source.ticket, job.prompt))])
            num_bytes = read_answer_head(wire, job.most_bytes)
            if not num_bytes:
                return None
            prefix = unpack(
                wire,
                num_bytes,
                key=job.source.ticket,
                origin=self._origin,
                scope=job.prompt.scope,
            )
            _check(prefix, job.prompt)
            return _Got(prefix, num_bytes, self._clock() - began)


def _give_up(job: _Job) -> None:
    job.is_given_up = True
    if job.timer is not None:
        job.timer.cancel()
    if job.wire is not None:
        job.wire.close()


def _check(prefix: StoredPrompt, prompt: Prompt) -> None:
    length = len(prefix.prompt)
    if not 0 < length <= len(prompt) or prefix.prompt.keys != prompt.keys[:length]:
        raise ExchangeError("the peer sent a prefix of another prompt")
