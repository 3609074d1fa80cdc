"""Sends prefixes of this agent's cache to other agents that have a ticket.

One thread accepts connections, and a small pool of threads does the transfers. A peer gets nothing
if its ticket is invalid, its prefix is missing, it is slow, or its message is invalid; other
transfers continue.
"""

import logging
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from ...shared.inference.prefix_peers import LONGEST_LOAN
from ...shared.quantities import Address
from ..engine.prompt import Prompt
from ..engine.prompt_store.disk_cache import DiskCache
from ..engine.prompt_store.stored_prompt import Origin, StoredPrompt, pack
from ..thread_pool import thread_pool
from .counts import Counts
from .exchange import answer_head, read_request
from .wire import Wire

logger = logging.getLogger(__name__)

MAX_TRANSFERS = 2
"""Maximum transfers at once: each takes host memory for the states of a prefix."""

MAX_CONNECTIONS = 32
"""Maximum connections, including waiting ones; further connections are closed at once."""

ASKING = 5.0
"""Seconds within which a peer has to send its request."""

ON_THE_WAY = 1.0
"""Seconds by which a ticket may arrive later than the peer that shows it, by another route."""

READING = 20.0
"""Seconds within which a busy engine has to read the states."""

MAX_TICKETS = 1024
"""Maximum tickets remembered; the latest are kept."""

PAUSE = 1.0
"""Seconds to wait after the system could not accept a connection."""

HandOut = Callable[[Prompt, Callable[[StoredPrompt | None], None]], Callable[[], None]]
"""Exports the longest prefix of a prompt; the returned function cancels. See `Worker.hand_out`."""


class KvSender:
    """Sends prefixes computed by `origin`. `tls` makes the context of each connection.

    The `disk` may have prefixes that have left the engine's cache.
    """

    def __init__(
        self,
        hand_out: HandOut,
        disk: DiskCache | None = None,
        *,
        origin: Origin,
        most_tokens: int,
        counts: Counts,
        tls: Callable[[], ssl.SSLContext] | None = None,
        reading: float = READING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hand_out = hand_out
        self._disk = disk
        self._origin = origin
        self._most_tokens = most_tokens
        self._counts = counts
        self._tls = tls
        self._reading = reading
        self._clock = clock
        self._tickets: OrderedDict[str, float] = OrderedDict()
        """The time until which each ticket is valid; a ticket is valid for one prefix."""
        self._news = threading.Condition()
        self._closed = threading.Event()
        self._threads = thread_pool(MAX_TRANSFERS, "lend")
        self._listener: socket.socket | None = None
        self._open: dict[Wire, SimpleQueue[StoredPrompt | None]] = {}

    def listen(self, address: Address, *, takes_over: bool = False) -> Address:
        """Listen at `address` and return the address in use.

        Raises `OSError`. Blocks for a look-up.

        `takes_over`: another process of this agent listens there until it has finished. A peer
        that reaches that process with a ticket of this process gets nothing.
        """
        family, _, _, _, found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if not takes_over and address.port:
            socket.create_server(found, family=family).close()  # is it taken by another program?
        self._listener = listener = socket.create_server(
            found,
            family=family,
            backlog=MAX_CONNECTIONS,
            reuse_port=hasattr(socket, "SO_REUSEPORT"),
        )
        threading.Thread(target=self._accept, args=(listener,), name="peers", daemon=True).start()
        return Address(address.host, listener.getsockname()[1])

    def allow(self, ticket: str, seconds: float) -> None:
        """Send a prefix to a peer that shows this ticket within `seconds`. Thread-safe."""
        with self._news:
            self._tickets[ticket] = self._clock() + seconds
            if len(self._tickets) > MAX_TICKETS:
                self._tickets.popitem(last=False)
            self._news.notify_all()

    def close(self) -> None:
        """Send no more prefixes; block until the threads have ended."""
        self._closed.set()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._news:
            self._news.notify_all()
            for wire, answers in self._open.items():
                wire.close()
                answers.put(None)
        self._threads.shutdown()

    # ---- on the thread that accepts

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if not self._closed.is_set():
                    logger.warning("a peer's connection could not be accepted: %s", error)
                self._closed.wait(PAUSE)
                continue
            self._take_in(connection)

    def _take_in(self, connection: socket.socket) -> None:
        wire = Wire(connection, ASKING, self._clock)
        with self._news:
            is_welcome = len(self._open) < MAX_CONNECTIONS and not self._closed.is_set()
            if is_welcome:
                self._open[wire] = SimpleQueue()
                self._threads.submit(self._serve, wire)
        if not is_welcome:
            connection.close()

    # ---- on the thread of a transfer

    def _serve(self, wire: Wire) -> None:
        with wire:
            try:
                wire.within(ASKING)
                self._send(wire)
            except OSError as error:
                logger.info("a peer got no prefix: %s", error)
            except Exception:  # the boundary of a transfer: the others go on
                logger.exception("a prefix could not be sent")
        with self._news:
            del self._open[wire]

    def _send(self, wire: Wire) -> None:
        if self._tls is not None:
            wire.upgrade(partial(self._tls().wrap_socket, server_side=True))
        request = read_request(wire, self._most_tokens)
        prefix = self._read(wire, request.prompt) if self._is_good(request.ticket) else None
        if prefix is None:
            wire.write([answer_head(0)])
            return
        parts = pack(request.ticket, self._origin, prefix)
        wire.within(LONGEST_LOAN)
        wire.write([answer_head(sum(map(len, parts))), *parts])
        self._counts.lent()

    def _is_good(self, ticket: str) -> bool:
        """Return whether the ticket is valid, or becomes valid within `ON_THE_WAY`."""
        with self._news:
            return bool(
                self._news.wait_for(
                    lambda: self._take(ticket) or self._closed.is_set(),
                    timeout=ON_THE_WAY,
                )
            )

    def _take(self, ticket: str) -> bool:
        """Return whether the ticket is valid, and make it invalid: a ticket is used once."""
        now = self._clock()
        return now < self._tickets.pop(ticket, now)

    def _read(self, wire: Wire, prompt: Prompt) -> StoredPrompt | None:
        """Return the longest prefix of `prompt` that the engine or the disk has; `None` without
        one.
        """
        prefix = self._read_from_engine(wire, prompt)
        if self._disk is None or self._closed.is_set():
            return prefix
        found = self._disk.find(prompt, spares_last=False)
        num_tokens = 0 if prefix is None else len(prefix.prompt)
        if found is None or found.num_tokens <= num_tokens:
            return prefix
        read = self._disk.read_parts(prompt, found, self._reading)
        return prefix if read is None or len(read.prompt) <= num_tokens else read

    def _read_from_engine(self, wire: Wire, prompt: Prompt) -> StoredPrompt | None:
        """Return the longest prefix of `prompt` that the engine has; `None` without one."""
        answers = self._open[wire]
        take_back = self._hand_out(prompt, answers.put)
        try:
            prefix = answers.get(timeout=self._reading)
        except Empty:
            take_back()
            raise TimeoutError("the engine was too busy to read the states") from None
        if self._closed.is_set():
            take_back()  # it may be `close` that answered
        return prefix
