"""Warns in the log of a certificate that expires."""

import asyncio
import logging
from contextlib import suppress

from .certificates import Certificates
from .expiry import warning

logger = logging.getLogger(__name__)


async def watch_expiry(certificates: Certificates) -> None:
    """Runs until it is cancelled; sleeps until there is something to say, or a new certificate."""
    changed = asyncio.Event()
    certificates.on_change = changed.set
    while True:
        found = warning(certificates.seconds_left())
        if found.message is not None:
            logger.warning("%s", found.message)
        changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), found.look_again)
