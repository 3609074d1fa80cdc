"""The life of a balancer, from start to orderly stop."""

import asyncio
import gc
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version

from ..shared import lifecycle
from ..shared.errors import InvalidRequest
from ..shared.lifecycle import Shutdown, StartupError
from ..shared.log import context
from ..shared.quantities import Address
from ..shared.strict import build_schemas, constants
from .access.access import Access
from .access.open_access import file_key
from .api.fields.field_table import FieldTable
from .cluster.worker import Pipes
from .diary.diary import Diary
from .fleet.runtime.fleet_runtime import FleetRuntime
from .management.events import EventHub
from .management.steering.desired_state_service import DesiredStateService
from .management.steering.drains import DrainService
from .numbers import collect_numbers, measure_loop_delay
from .parts import assemble
from .persistence import LAST_WRITES
from .ports import check_exposure, open_ports
from .settings import BalancerSettings
from .store.port import StoreAway
from .store.store import Store
from .tls.certificates import Certificates

logger = logging.getLogger(__name__)

YOUNG_OBJECTS = 50_000
"""Number of new objects between two searches for reference cycles.

A step of a few hundred streams creates thousands of objects without cycles.
"""


async def main(settings: BalancerSettings, shutdown: Shutdown, pipes: Pipes | None = None) -> None:
    """Serve until `shutdown` is requested, then drain. Raises `StartupError`.

    If this process is one of several workers, `pipes` connect it to the parent.
    """
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(settings, until_the_end, pipes)
        collect_numbers(parts)
        measure_loop_delay(parts.metrics, until_the_end)
        check_exposure(settings, has_keys=not parts.access.is_open)
        await restore(parts.desired_state, parts.drains, parts.persistence.store, diary=parts.diary)
        parts.diary.note(
            "balancer_started", settings.balancer_name, f"version {version('arriero')}"
        )
        served = await parts.persistence.history.models_served(settings.model_memory)
        parts.runtime.restore_models(served)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in parts.work(settings)]
            if pipes is not None:
                running.append(tasks.create_task(pipes.run(shutdown)))
            shutdown.on_refresh(partial(_read_files, settings, parts.access, parts.certificates))
            addresses = await open_ports(parts, settings, until_the_end)
            _calm_garbage_collector()
            _announce(addresses, parts.certificates, parts.pipes)
            running.append(tasks.create_task(asyncio.to_thread(build)))
            await shutdown.requested.wait()
            if parts.peers is not None:
                parts.peers.resign()
            await _drain(parts.runtime, parts.hub, settings.drain_timeout)
            if parts.request_service is not None:
                await parts.request_service.flush(LAST_WRITES)
            if parts.conversation_service is not None:
                await parts.conversation_service.flush(LAST_WRITES)
            tasks.create_task(parts.desired_state.flush(LAST_WRITES))
            await parts.persistence.flush(parts.runtime.views.totals())
            await parts.diary.flush(LAST_WRITES)
            if parts.peers is not None:
                await parts.peers.leave()
            for task in running:
                task.cancel()


def build() -> None:
    """Build the validators of bodies and messages before their first use.

    The function runs on a thread, because it takes a second in which requests must be served.
    """
    build_schemas()
    for table in constants(FieldTable):
        table.adapter.rebuild()
        table.given(b"{}")
    gc.freeze()


async def restore(
    desired_state: DesiredStateService, drains: DrainService, store: Store, *, diary: Diary
) -> None:
    """Restore the saved desired state, drains and hosts.

    Raises `StartupError`.
    """
    try:
        await drains.restore()
        await diary.restore()
        desired_state.restore(await store.load_desired_state())
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the desired state: {error}") from error
    except InvalidRequest as error:
        raise StartupError(
            f"--state: this version cannot read the saved desired state: {error.message}"
        ) from error


def _calm_garbage_collector() -> None:
    """Collect cyclic garbage less often, and skip the objects from the start.

    With Python's defaults, a busy balancer spent a fifth of its time on garbage collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def _read_files(
    settings: BalancerSettings, access: Access, certificates: Certificates | None
) -> None:
    """Read the certificate and the admin key again.

    If a file cannot be used, the error is logged and the old certificate or key stays valid.
    """
    if certificates is not None:
        certificates.check()
    if settings.admin_key_file is not None:
        try:
            access.fix(file_key(settings.admin_key_file))
        except StartupError as error:
            logger.error(
                "the new key in --admin-key-file cannot be used, so the old key stays valid: %s",
                error,
            )


def _announce(
    addresses: Mapping[str, Address], certificates: Certificates | None, pipes: Pipes | None
) -> None:
    ready = partial(lifecycle.ready, "balancer") if pipes is None else pipes.ready
    scheme = "http" if certificates is None else "https"
    logger.info("balancer is ready", extra=context(**addresses, scheme=scheme))
    logger.info("dashboard at %s://%s/", scheme, addresses["management"])
    ready(**addresses, **({} if scheme == "http" else {"scheme": scheme}))


async def _drain(runtime: FleetRuntime, hub: EventHub, within: float) -> None:
    num = runtime.views.totals().num_requests
    logger.info("draining: %d requests have %g s to finish", num, within)
    await runtime.drain(within)
    hub.close()
    runtime.goodbye()
    logger.info("drained: the balancer stops")
