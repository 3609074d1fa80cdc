"""Files and batches as the daemon wires them up."""

import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from ..shared.lifecycle import StartupError
from .access.access import Access
from .api.conversations import Conversations
from .api.openai.batches.line_doors import LineDoors
from .api.transport.bodies import Bodies
from .fleet.caller import Caller
from .fleet.runtime.fleet_runtime import FleetRuntime
from .jobs.blobs.place import FilesPlace
from .jobs.blobs.port import BlobsAway
from .jobs.blobs.temporary_folder import temporary_folder
from .jobs.core.batch import BatchCaller
from .jobs.file_limits import FileLimits
from .jobs.jobs import Jobs, open_jobs
from .persistence import Persistence
from .settings import BalancerSettings
from .store.port import StoreAway

logger = logging.getLogger(__name__)

PATIENCE = 120.0
"""Most seconds after the start for which lines wait for a model that nobody knows yet."""


async def open_batch_jobs(
    settings: BalancerSettings,
    persistence: Persistence,
    runtime: FleetRuntime,
    access: Access,
    conversations: Conversations,
    bodies: Bodies,
    until_the_end: AsyncExitStack,
) -> Jobs | None:
    """`None` where there is no place for files. Raises `StartupError`."""
    place = place_of(settings, until_the_end)
    if place is None:
        return None
    try:
        return await open_jobs(
            persistence.store.jobs,
            place,
            FileLimits(settings.max_file_size, settings.files_limit),
            fleet=runtime,
            answer=LineDoors(runtime, conversations, bodies).answer,
            caller_of=callers(access),
            patience=min(PATIENCE, settings.model_memory),
            until_the_end=until_the_end,
        )
    except (BlobsAway, OSError) as error:
        raise StartupError(f"--files: {error}") from error
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the files: {error}") from error


def place_of(settings: BalancerSettings, until_the_end: AsyncExitStack) -> FilesPlace | None:
    """`--files`, or what follows from `--state`."""
    if settings.files is not None:
        return settings.files
    if settings.state.kind == "sqlite":
        return FilesPlace(Path(f"{settings.state.location}-files"))
    if settings.state.kind == "memory":
        try:
            folder = until_the_end.enter_context(temporary_folder())
        except OSError as error:  # as in a container that can write nowhere
            logger.warning("no files and batches without --files: %s", error)
            return None
        return FilesPlace(folder)
    return None


def callers(
    access: Access, clock: Callable[[], float] = time.time
) -> Callable[[BatchCaller], Caller | None]:
    """Gives whoever made a batch, with the limits of now; `None` if the key is valid no more."""

    def caller_of(maker: BatchCaller) -> Caller | None:
        if maker.owner is None:
            return Caller(address=maker.address, user_agent="batch")
        key = access.ring.get(maker.name)
        if key is None or key.identity.owner != maker.owner or key.problem(clock()) is not None:
            return None
        return Caller(name=maker.name, user_agent="batch", limits=key.limits, owner=maker.owner)

    return caller_of
