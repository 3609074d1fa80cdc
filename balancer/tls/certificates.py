"""The certificate that both ports show, loaded again when its files have changed.

A new connection looks at the files, at most once in `LOOK_INTERVAL`; nobody polls. Open connections
keep what they began with. What cannot be used is reported once, and what was loaded stays. Looking
takes microseconds and loading a millisecond, so both are done where they are needed.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...shared.messages import Issue
from ...shared.tls.contexts import ServerContext, server_context
from ...shared.tls.key_pair import KeyPair, TlsFileError
from .expiry import issue, warning

LOOK_INTERVAL = 1.0
"""Seconds."""

logger = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The contexts for new connections. Raises `TlsFileError` when made."""

    def __init__(
        self,
        pair: KeyPair,
        agent_ca: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`now`: seconds since 1970. `on_change` is called after a certificate was loaded."""
        self._pair = pair
        self._agent_ca = agent_ca
        self._clock = clock
        self._now = now
        self.on_change = on_change
        self._stamp = self._look()
        self._looked_at = clock()
        self._clients, self._agents = self._load()

    @property
    def not_after(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return self._clients.validity.not_after

    def seconds_left(self) -> float:
        """How long the certificate is still valid."""
        return self.not_after - self._now()

    def issues(self) -> tuple[Issue, ...]:
        """What operators should do about the certificate."""
        found = issue(self.seconds_left())
        return () if found is None else (found,)

    def by_port(self) -> dict[str, Callable[[], ssl.SSLContext]]:
        """What gives the context for a new connection, by the port's name.

        With `agent_ca` the management port asks for a certificate.
        """
        return {"inference": self._for_clients, "management": self._for_management}

    def _for_clients(self) -> ssl.SSLContext:
        self._refresh()
        return self._clients.context

    def _for_management(self) -> ssl.SSLContext:
        self._refresh()
        return self._agents.context

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_INTERVAL:
            return
        self._looked_at = now
        if (stamp := self._look()) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._clients, self._agents = self._load()
        except TlsFileError as error:
            logger.error("the new certificate cannot be used, the old one stays: %s", error)
            return
        logger.info("a new certificate is loaded: %s", self._pair.cert)
        self.on_change()

    def _load(self) -> tuple[ServerContext, ServerContext]:
        now = self._now()
        clients = server_context(self._pair, now)
        if self._agent_ca is None:
            return clients, clients
        return clients, server_context(self._pair, now, self._agent_ca)

    def _look(self) -> _Stamp:
        files = (self._pair.cert, self._pair.key, self._agent_ca)
        return tuple(_stamp(file) for file in files if file is not None)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content; none where it cannot be seen."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


async def watch_expiry(certificates: Certificates) -> None:
    """Warns in the log of a certificate that expires, until it is cancelled.

    Sleeps until there is something to say, or a new certificate.
    """
    changed = asyncio.Event()
    certificates.on_change = changed.set
    while True:
        found = warning(certificates.seconds_left())
        if found.message is not None:
            logger.warning("%s", found.message)
        changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), found.look_again)
