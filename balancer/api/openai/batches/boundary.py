"""The boundary around all handlers of files and batches."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from aiohttp import web

from .....shared.errors import InvalidRequest, NotSupported, StoreUnavailable
from ....jobs.blobs import BlobsAway
from ....jobs.jobs import Jobs
from ....store.port import StoreAway
from ...common.answering import json_response
from ...transport.fault_reports import RefusalReport

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Make = Callable[[web.Request, Jobs], Awaitable[object]]
"""Makes what a request is answered with, as JSON."""


class Listed(Protocol):
    """Files, or batches."""

    async def has(self, id: str, owner: str | None) -> bool: ...


@contextmanager
def jobs_for(request: web.Request, jobs: Jobs | None) -> Iterator[Jobs]:
    """Refusals are reported; a store that cannot be reached is `StoreUnavailable`.

    Raises `NotSupported` where this balancer keeps no files.
    """
    with RefusalReport(request):
        if jobs is None:
            raise NotSupported(
                "this balancer has no place for files: it has to be given one (--files)"
            )
        try:
            yield jobs
        except (StoreAway, BlobsAway) as error:
            logger.warning("files and batches cannot be reached: %s", error)
            raise StoreUnavailable(
                "files and batches cannot be reached now; try again in a moment"
            ) from error


def answering(jobs: Jobs | None, make: Make) -> Handler:
    """A handler with all of that around it."""

    async def handler(request: web.Request) -> web.Response:
        with jobs_for(request, jobs) as found:
            return json_response(await make(request, found))

    return handler


async def check_after(after: str | None, owner: str | None, things: Listed) -> None:
    """Raises `InvalidRequest` where the page begins behind something that is not there."""
    if after is not None and not await things.has(after, owner):
        raise InvalidRequest(
            f"`after`: there is nothing with the id {after[:100]!r}", field="after"
        )
