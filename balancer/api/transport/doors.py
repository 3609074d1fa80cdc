"""Reports refusals at the doors: counts and logs them, and notes repeated ones in the diary.

Doors are the ports, the log-in of the dashboard, the agents' socket, and TLS. Keys are never
logged: an error's message contains at most the name of a key.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from ....shared.errors import RequestError
from ....shared.log import context
from ...access.refusals import Door, Refusals

logger = logging.getLogger(__name__)

NAMES: dict[Door, str] = {
    "inference": "inference port",
    "management": "management port",
    "log_in": "log-in of the dashboard",
    "agents": "agents' socket",
    "tls": "TLS handshake",
}

LOG_IN_PATH = "/api/v1/session"
AGENTS_PATH = "/api/v1/agent-socket"


class RefusalRecorder(Protocol):
    """Counts refusals; both arguments have few different values."""

    def turned_away(self, door: str, kind: str) -> None: ...


Note = Callable[[str, str], None]
"""Writes an entry of the diary from an address and a text."""


class Doors:
    """The doors of a balancer; both ports share them."""

    def __init__(
        self, recorder: RefusalRecorder, note: Note, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recorder = recorder
        self._note = note
        self._clock = clock
        self._refusals = Refusals()
        self._reasons: dict[Door, str] = {}

    def refused(self, door: Door, kind: str, who: str | None, why: str) -> None:
        """Report that a caller from the address `who` was refused at `door`.

        `why` is the reason in words.
        """
        self._recorder.turned_away(door, kind)
        self._reasons[door] = f"at the {NAMES[door]}: {why}"
        who = who or "an unknown address"
        outcome = self._refusals.refused(door, kind, who, self._clock())
        if outcome.is_logged:
            about = context(door=door, kind=kind, peer=who)
            logger.warning("refused at the %s: %s", NAMES[door], why, extra=about)
        if outcome.num_noted:
            times = "once" if outcome.num_noted == 1 else f"{outcome.num_noted} times in a minute"
            self._note(who, f"refused {times} at the {NAMES[door]}, the last time: {why}")

    def going_on(self) -> Mapping[Door, tuple[Sequence[str], str]]:
        """Return for each door the callers that are refused repeatedly, and the last reason."""
        found = self._refusals.going_on(self._clock())
        return {door: (callers, self._reasons[door]) for door, callers in found.items()}


PORT_DOORS = web.AppKey("PORT_DOORS", tuple[Doors, Door])
"""App keys of the port's `Doors`, and of the door that the port is."""


def report_at_door(request: web.Request, error: RequestError) -> None:
    """Report `error` if it refuses the sender of `request`; other errors have no `kind`."""
    if error.kind is None or PORT_DOORS not in request.app:
        return
    doors, door = request.app[PORT_DOORS]
    if door == "management" and request.path == AGENTS_PATH:
        door = "agents"
    elif door == "management" and request.path == LOG_IN_PATH:
        door = "log_in"
    doors.refused(door, error.kind, request.remote, error.message)
