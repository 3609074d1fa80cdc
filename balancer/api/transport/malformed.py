"""Malformed HTTP is logged on one line and answered, without a traceback.

Anyone can send it as fast as they like, so at most one line is logged in `LOG_INTERVAL`.
"""

import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from ....shared.errors import InvalidRequest
from ....shared.log import context

LOG_INTERVAL = 1.0
"""Seconds."""

LONGEST_REASON = 200
"""Characters; reasons quote what was sent."""

MalformedHttp = HttpProcessingError | RequestPayloadError
"""Exceptions of aiohttp for it: while reading a header, and while reading a body."""

logger = logging.getLogger(__name__)


class MalformedRequests:
    """The malformed requests of one port."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = clock()
        self._num_unlogged = 0

    def log(self, peer: str, error: MalformedHttp) -> None:
        """Log that `peer` sent something malformed, or count it for the next line."""
        now = self._clock()
        if now < self._quiet_until:
            self._num_unlogged += 1
            return
        logger.info(
            "malformed HTTP from a client: %s",
            reason_of(error),
            extra=context(peer=peer, not_logged_before=self._num_unlogged or None),
        )
        self._quiet_until = now + LOG_INTERVAL
        self._num_unlogged = 0


def as_invalid_request(error: MalformedHttp) -> InvalidRequest:
    """The error that the client is answered with."""
    return InvalidRequest(f"this is not valid HTTP: {reason_of(error)}")


def reason_of(error: MalformedHttp) -> str:
    """What is wrong, on one line."""
    source = error.__cause__ if isinstance(error, RequestPayloadError) else error
    message = source.message if isinstance(source, HttpProcessingError) else str(error)
    return " ".join(message.split())[:LONGEST_REASON]
