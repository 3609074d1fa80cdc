"""The boundary around all handlers of files and batches: it reports and translates their errors."""

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
"""Makes the answer to a request, as JSON."""


class Listed(Protocol):
    """Files or batches, as a list that ids can be looked up in."""

    async def has(self, id: str, owner: str | None) -> bool: ...


@contextmanager
def jobs_for(request: web.Request, jobs: Jobs | None) -> Iterator[Jobs]:
    """Return a context that yields `jobs`, reports refusals, and translates store errors.

    An unreachable store gives `StoreUnavailable`. Raises `NotSupported` if this balancer stores no
    files.
    """
    with RefusalReport(request):
        if jobs is None:
            raise NotSupported("this balancer stores no files: start it with --files FOLDER")
        try:
            yield jobs
        except (StoreAway, BlobsAway) as error:
            logger.warning("a request for files or batches failed: %s", error)
            raise StoreUnavailable(
                "files and batches cannot be reached now; try again in a moment"
            ) from error


def answering(jobs: Jobs | None, make: Make) -> Handler:
    """Return a handler within this boundary."""

    async def handler(request: web.Request) -> web.Response:
        with jobs_for(request, jobs) as found:
            return json_response(await make(request, found))

    return handler


async def check_after(after: str | None, owner: str | None, things: Listed) -> None:
    """Raise `InvalidRequest` if the item after which a page begins does not exist."""
    if after is not None and not await things.has(after, owner):
        raise InvalidRequest(f"`after`: nothing has the id {after[:100]!r}", field="after")
