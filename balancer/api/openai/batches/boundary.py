"""What all handlers of files and batches have around them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from .....shared.errors import NotSupported, StoreUnavailable
from ....jobs.blobs.port import BlobsAway
from ....jobs.jobs import Jobs
from ....store.port import StoreAway
from ...transport.door_reports import refusals_reported

logger = logging.getLogger(__name__)


@contextmanager
def jobs_for(request: web.Request, jobs: Jobs | None) -> Iterator[Jobs]:
    """Refusals are reported; a store that cannot be reached is `StoreUnavailable`.

    Raises `NotSupported` where this balancer keeps no files.
    """
    with refusals_reported(request):
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
