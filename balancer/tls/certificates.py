"""The certificate of both ports, which is loaded again after its files have changed.

A new connection checks the files, at most once per `CHECK_INTERVAL`; nothing polls. Open
connections keep their certificate. A faulty file is reported once, and the loaded certificate
stays in use. Checking takes microseconds and loading a millisecond, so neither needs a thread.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...shared.messages import Issue
from ...shared.tls.contexts import ServerContext, server_context
from ...shared.tls.key_pair import KeyPair, TlsFileError

CHECK_INTERVAL = 1.0
"""Minimum seconds between two checks of the files."""

logger = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The TLS contexts for new connections. The constructor raises `TlsFileError`."""

    def __init__(
        self,
        pair: KeyPair,
        agent_ca: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Load the certificate.

        `now` returns seconds since 1970. `on_change` is called after a new certificate was loaded.
        """
        self._pair = pair
        self._agent_ca = agent_ca
        self._clock = clock
        self._now = now
        self.on_change = on_change
        self._stamp = self._stamps()
        self._checked_at = clock()
        self._clients, self._agents = self._load()

    @property
    def not_after(self) -> float:
        """Return when the certificate expires, in seconds since 1970."""
        return self._clients.validity.not_after

    def seconds_left(self) -> float:
        """Return the seconds until the certificate expires."""
        return self.not_after - self._now()

    def issues(self) -> tuple[Issue, ...]:
        """Return the certificate's issues, with advice for operators."""
        found = issue(self.seconds_left())
        return () if found is None else (found,)

    def by_port(self) -> dict[str, Callable[[], ssl.SSLContext]]:
        """Return functions that return the TLS context for a new connection, by port.

        If `agent_ca` is given, the management port asks for a certificate.
        """
        return {"inference": self._for_clients, "management": self._for_management}

    def _for_clients(self) -> ssl.SSLContext:
        self._refresh()
        return self._clients.context

    def _for_management(self) -> ssl.SSLContext:
        self._refresh()
        return self._agents.context

    def _refresh(self) -> None:
        if self._clock() - self._checked_at >= CHECK_INTERVAL:
            self.check()

    def check(self) -> None:
        """Load the files again if they have changed."""
        self._checked_at = self._clock()
        if (stamp := self._stamps()) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._clients, self._agents = self._load()
        except TlsFileError as error:
            logger.error(
                "the new certificate cannot be used, so the old one stays in use: %s", error
            )
            return
        logger.info("a new certificate is loaded: %s", self._pair.cert)
        self.on_change()

    def _load(self) -> tuple[ServerContext, ServerContext]:
        now = self._now()
        clients = server_context(self._pair, now)
        if self._agent_ca is None:
            return clients, clients
        return clients, server_context(self._pair, now, self._agent_ca)

    def _stamps(self) -> _Stamp:
        files = (self._pair.cert, self._pair.key, self._agent_ca)
        return tuple(_stamp(file) for file in files if file is not None)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file; `None` if the file cannot be read."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


# ---- when to warn of a certificate that expires


DAY = 24 * 3600.0
WARN_BEFORE = 14 * DAY
"""Seconds before the end at which warnings begin.

ACME's authorities renew a certificate a month before its end, so a warning means a failed renewal.
"""


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning to log now, if any, and the seconds until the next check."""

    message: str | None
    ask_again: float


def issue(seconds_left: float) -> Issue | None:
    """Return the issue of a certificate that expires soon, if any."""
    message = warning(seconds_left).message
    if message is None:
        return None
    reason, _, hint = message.partition("; ")
    return Issue(code="certificate_expires", message=reason, hint=hint)


def warning(seconds_left: float) -> Warning:
    """Return the warning to log now.

    From `WARN_BEFORE` seconds before the end, there is one warning each day.
    """
    if seconds_left > WARN_BEFORE:
        return Warning(None, seconds_left - WARN_BEFORE)
    if seconds_left <= 0:
        return Warning(
            "the certificate has expired, so clients refuse to connect; renew the certificate", DAY
        )
    days = int(seconds_left // DAY)
    when = "in less than a day" if days == 0 else "in 1 day" if days == 1 else f"in {days} days"
    ask_again = min(DAY, seconds_left)
    return Warning(f"the certificate expires {when}; renew the certificate", ask_again)


async def watch_expiry(certificates: Certificates) -> None:
    """Log warnings about a certificate that expires, until cancelled.

    Sleeps until the next warning, or until a new certificate is loaded.
    """
    changed = asyncio.Event()
    certificates.on_change = changed.set
    while True:
        found = warning(certificates.seconds_left())
        if found.message is not None:
            logger.warning("%s", found.message)
        changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), found.ask_again)
