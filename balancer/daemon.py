"""Wires a balancer up: the fleet's core, both ports, and an orderly stop."""

import asyncio
import gc
import logging
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from aiohttp import web

from ..shared import lifecycle, log
from ..shared.errors import InvalidRequest
from ..shared.lifecycle import Shutdown, StartupError
from ..shared.log import context
from ..shared.quantities import Address
from ..shared.tls.key_pair import KeyPair, TlsFileError
from ..shared.tracing.open_telemetry import open_tracer
from .access.access import Access
from .access.key_keeper import KeyKeeper
from .access.sessions import Sessions
from .admission import caller_now, keeper_of, open_access
from .api.app import inference_app
from .api.common.opening import no_recall
from .api.conversation_store import ConversationStore
from .api.links.fetching import Fetcher
from .api.links.filling import LinkFiller
from .api.transport.bodies import MAX_BODY_BYTES, Bodies
from .api.transport.door_reports import DoorReports
from .api.transport.file_limit import raise_file_limit
from .api.transport.hosts import AllowedHosts
from .batch_jobs import open_batch_jobs
from .fleet.core.fleet import Fleet
from .fleet.limits import Limits
from .fleet.runtime.agent_socket import Workers
from .fleet.runtime.fleet_runtime import FleetRuntime
from .fleet.runtime.kept_requests import MAX_KEPT, KeptRequests
from .history.recorder import Recorders
from .jobs.jobs import Jobs
from .kept.keeper import KeptKeeper
from .management.about import no_issues
from .management.balancers import alone
from .management.elsewhere.everywhere import Everywhere
from .management.events import EventHub
from .management.metrics.loop_delay import LoopDelay
from .management.metrics.metrics import Metrics
from .management.routes import management_app, metrics_route
from .management.steering.drains import DrainKeeper
from .management.steering.keeper import DesiredStateKeeper
from .management.steering.routes import by_nobody
from .peering import balancers_of, everywhere_of, open_peers, session_teller
from .peers.peers import Peers
from .persistence import LAST_WRITES, Persistence
from .ports import check_exposure, connections_of, serve
from .settings import BalancerSettings
from .store.kept.records import KeptBounds
from .store.port import Store, StoreAway
from .tls.certificates import Certificates
from .tls.expiry_watch import watch_expiry
from .tracing.trace_recorder import TraceRecorder
from .workers.hub_store import HubPeerStore
from .workers.place import Pipes

logger = logging.getLogger(__name__)

YOUNG_OBJECTS = 50_000
"""New objects between two looks for cycles. A step of a few hundred streams makes thousands, and
frees them by itself."""


async def main(settings: BalancerSettings, shutdown: Shutdown, pipes: Pipes | None = None) -> None:
    """Serve until `shutdown` is requested, then drain. Raises `StartupError`.

    `pipes` lead to the parent, if this is one of several workers.
    """
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(settings, until_the_end, pipes)
        check_exposure(settings, has_keys=not parts.access.is_open)
        await restore(parts.keeper, parts.drains, parts.persistence.store)
        parts.runtime.recall_models(parts.persistence.history.models_served(settings.model_memory))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in parts.work(settings)]
            if pipes is not None:
                running.append(tasks.create_task(pipes.run(shutdown)))
            addresses = await _open_ports(parts, settings, until_the_end)
            _calm_garbage_collector()
            _announce(addresses, parts.certificates, parts.pipes)
            await shutdown.requested.wait()
            if parts.peers is not None:
                parts.peers.resign()
            await _drain(parts.runtime, parts.hub, settings.drain_timeout)
            if parts.kept_keeper is not None:
                await parts.kept_keeper.flush(LAST_WRITES)
            await parts.persistence.flush(parts.runtime.totals())
            if parts.peers is not None:
                await parts.peers.leave()
            for task in running:
                task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a balancer is made of; both ports share it."""

    metrics: Metrics
    persistence: Persistence
    runtime: FleetRuntime
    hub: EventHub
    keeper: DesiredStateKeeper
    drains: DrainKeeper
    conversations: ConversationStore
    kept: KeptRequests
    kept_keeper: KeptKeeper | None
    bodies: Bodies
    hosts: AllowedHosts
    reports: DoorReports
    certificates: Certificates | None
    access: Access
    keys: KeyKeeper
    sessions: Sessions
    jobs: Jobs | None
    peers: Peers | None
    everywhere: Everywhere
    pipes: Pipes | None

    def work(self, settings: BalancerSettings) -> list[Coroutine[None, None, None]]:
        """What runs as long as the balancer does."""
        work = [
            self.runtime.run(),
            self.hub.run(),
            self.persistence.run(self.runtime.totals, self.keeper.told),
        ]
        if self.jobs is not None:
            work.append(self.jobs.run())
        if self.kept_keeper is not None:
            work.append(self.kept_keeper.run())
        if self.peers is not None:
            work.append(self.peers.run())
        if (
            settings.state.kind == "sqlite" and self.persistence.writer.keeps_history
        ):  # so other programs may write to it, too
            work.append(self.keys.follow())
        if self.certificates is not None:
            work.append(watch_expiry(self.certificates))
        return work


async def assemble(
    settings: BalancerSettings, until_the_end: AsyncExitStack, pipes: Pipes | None = None
) -> Parts:
    """Make the parts; `until_the_end` closes them. Raises `StartupError`."""
    metrics = Metrics()
    hub = None if pipes is None else HubPeerStore(pipes)
    persistence = await Persistence.open(settings.state, hub)
    until_the_end.push_async_callback(persistence.close)
    fleet = Fleet(limits_of(settings), version=version("arriero"))
    tracer = open_tracer("arriero-balancer", version("arriero"))
    until_the_end.push_async_callback(asyncio.to_thread, tracer.close)
    recorders = Recorders(metrics, persistence.history.recorder, TraceRecorder(tracer))
    runtime = FleetRuntime(fleet, recorder=recorders, tracer=tracer)
    metrics.collect_spans(tracer.numbers)
    access = await open_access(persistence, settings.admin_key_file)
    access.listen(lambda holder, error: runtime.revoked(holder.owner, error))
    access.start()
    until_the_end.callback(access.stop)
    conversations = ConversationStore(
        max_bytes=settings.responses_limit, max_age=settings.responses_max_age
    )
    fetcher = Fetcher()
    filler = LinkFiller(fetcher.fetch, MAX_BODY_BYTES) if settings.media_urls else None
    bodies = until_the_end.enter_context(Bodies(filler=filler))
    metrics.collect_links(lambda: fetcher.num_open)
    keeper = kept_keeper_of(settings, persistence, runtime, access)
    kept = KeptRequests(
        runtime,
        max_bytes=settings.responses_limit,
        max_age=settings.responses_max_age,
        journal=None if keeper is None else keeper.journal,
    )
    if keeper is not None:
        keeper.serve(kept)
    desired_state = DesiredStateKeeper(runtime, persistence.writer.persist)
    drains = DrainKeeper(runtime, persistence.cordons)
    keys = keeper_of(access, persistence)
    sessions = Sessions()
    peers = open_peers(
        settings.balancer_name,
        persistence,
        runtime,
        keeper=desired_state,
        drains=drains,
        keys=keys,
        url=settings.public_url,
        render=metrics.render,
        sessions=sessions,
    )
    workers = {} if pipes is None else pipes.place.names(settings.balancer_name)
    everywhere = everywhere_of(peers, workers)
    parts = Parts(
        metrics=metrics,
        persistence=persistence,
        runtime=runtime,
        hub=EventHub(runtime, everywhere),
        keeper=desired_state,
        drains=drains,
        conversations=conversations,
        kept=kept,
        kept_keeper=keeper,
        bodies=bodies,
        hosts=hosts_of(settings),
        reports=DoorReports(metrics, is_strict=settings.strict_fields),
        certificates=certificates_of(settings),
        access=access,
        keys=keys,
        sessions=sessions,
        jobs=await open_batch_jobs(
            settings, persistence, runtime, access, conversations, bodies, until_the_end
        ),
        peers=peers,
        everywhere=everywhere,
        pipes=pipes,
    )
    _collect_numbers(parts)
    _measure_loop_delay(metrics, until_the_end)
    return parts


def kept_keeper_of(
    settings: BalancerSettings, persistence: Persistence, runtime: FleetRuntime, access: Access
) -> KeptKeeper | None:
    """What makes kept requests outlive the balancer, where the store and the settings keep any."""
    if persistence.kept is None or settings.responses_limit == 0:
        return None
    bounds = KeptBounds(
        num=MAX_KEPT, num_bytes=settings.responses_limit, age=settings.responses_max_age
    )
    return KeptKeeper(persistence.kept, bounds, partial(caller_now, access), runtime.engine_of)


def _collect_numbers(parts: Parts) -> None:
    """Let the metrics ask the parts when they are read."""
    metrics, runtime, conversations = parts.metrics, parts.runtime, parts.conversations
    metrics.collect_fleet(
        partial(runtime.view, max_requests=0), backlog=runtime.backlog, events=parts.hub.numbers
    )
    metrics.collect_responses(lambda: len(conversations), lambda: conversations.num_bytes)
    keeper = parts.kept_keeper
    metrics.collect_kept(
        lambda: len(parts.kept),
        lambda: parts.kept.num_bytes,
        lambda: 0 if keeper is None else len(keeper.journal),
    )
    metrics.collect_log(log.num_dropped)
    metrics.collect_store(parts.persistence.writer.status)
    metrics.collect_log_reads(lambda: runtime.num_log_reads)
    metrics.collect_bodies(lambda: parts.bodies.num_bytes)
    metrics.collect_usage(lambda: len(parts.persistence.history.usage))
    metrics.collect_limits(lambda: runtime.num_limited_callers)
    metrics.collect_notices(lambda: parts.reports.num_clients)
    access = parts.access
    metrics.collect_keys(lambda: access.ring.num_valid, lambda: access.num_leases)
    if (peers := parts.peers) is not None:
        metrics.collect_peers(
            lambda: peers.num_live,
            lambda: int(peers.status().epoch is not None),
            lambda: peers.status().num_unread,
            lambda: peers.inquiries.num_open,
        )
    if parts.jobs is not None:
        metrics.collect_jobs(parts.jobs.numbers)
    metrics.collect_sessions(lambda: len(parts.sessions))
    if parts.certificates is not None:
        metrics.collect_certificate(parts.certificates.seconds_left)


def _measure_loop_delay(metrics: Metrics, until_the_end: AsyncExitStack) -> None:
    delay = LoopDelay()
    metrics.collect_loop_delay(delay)
    delay.start()
    until_the_end.callback(delay.stop)


async def _open_ports(
    parts: Parts, settings: BalancerSettings, ports: AsyncExitStack
) -> dict[str, Address]:
    """Listen on both ports until `ports` closes; the addresses taken."""
    certificates = parts.certificates
    addresses: dict[str, Address] = {}
    apps = {
        "inference": (settings.inference_addr, _inference(parts, settings)),
        "management": (settings.management_addr, _management(parts, settings, addresses)),
    }
    tls = {} if certificates is None else certificates.by_port()
    raise_file_limit(len(apps) * settings.max_connections)
    for name, (address, app) in apps.items():
        connections = connections_of(settings, tls.get(name))
        parts.metrics.collect_connections(name, partial(getattr, connections, "num_open"))
        is_shared = parts.pipes is not None
        port = serve(app, address, f"--{name}-addr", connections, is_shared=is_shared)
        addresses[name] = await ports.enter_async_context(port)
    return addresses


def _inference(parts: Parts, settings: BalancerSettings) -> web.Application:
    return inference_app(
        parts.runtime,
        parts.conversations,
        kept=parts.kept,
        recall=no_recall if parts.kept_keeper is None else parts.kept_keeper.recall,
        bodies=parts.bodies,
        hosts=parts.hosts,
        reports=parts.reports,
        access=parts.access,
        jobs=parts.jobs,
        more_routes=[metrics_route(parts.metrics, parts.everywhere)]
        if settings.metrics_for_clients
        else [],
    )


def _management(
    parts: Parts, settings: BalancerSettings, addresses: Mapping[str, Address]
) -> web.Application:
    """`addresses` of the ports that are open are put in later."""

    def ports() -> tuple[int | None, str | None]:
        inference = addresses.get("inference")
        return None if inference is None else inference.port, settings.public_url

    return management_app(
        parts.runtime,
        parts.hub,
        parts.metrics,
        keeper=parts.keeper,
        drains=parts.drains,
        history=parts.persistence.history,
        store_status=parts.persistence.writer.status,
        bodies=parts.bodies,
        hosts=parts.hosts,
        agents_show_certificates=settings.agent_ca is not None,
        workers=workers_of(parts.pipes),
        ports=ports,
        access=parts.access,
        keys=parts.keys,
        sessions=parts.sessions,
        jobs=parts.jobs,
        issues=no_issues if parts.certificates is None else parts.certificates.issues,
        tell_session=session_teller(parts.peers),
        everywhere=parts.everywhere,
        retry_elsewhere=by_nobody if parts.peers is None else parts.peers.retry,
        list_balancers=balancers_of(
            parts.peers, alone(settings.balancer_name, settings.public_url)
        ),
    )


async def restore(keeper: DesiredStateKeeper, drains: DrainKeeper, store: Store) -> None:
    """Take up the desired state and the drains that were saved. Raises `StartupError`."""
    try:
        await drains.restore()
        keeper.restore(await store.load_desired_state())
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the desired state: {error}") from error
    except InvalidRequest as error:
        raise StartupError(
            f"--state: this version cannot read the saved desired state: {error.message}"
        ) from error


def hosts_of(settings: BalancerSettings) -> AllowedHosts:
    """What the ports may be called: what was given, and the names they listen on."""
    listening = (settings.inference_addr.host, settings.management_addr.host)
    names = [host for host in listening if ":" not in host]  # addresses need not be given
    return AllowedHosts([*settings.allowed_host, *names])


def certificates_of(settings: BalancerSettings) -> Certificates | None:
    """The certificate of both ports, if one is given. Raises `StartupError`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return Certificates(KeyPair(settings.tls_cert, settings.tls_key), settings.agent_ca)
    except TlsFileError as error:
        raise StartupError(str(error)) from error


def limits_of(settings: BalancerSettings) -> Limits:
    """The settings that the fleet's core knows."""
    return Limits(
        max_buffered_requests=settings.max_buffered_requests,
        routing=settings.routing,
        buffered_request_timeout=settings.buffered_request_timeout,
        first_token_timeout=settings.first_token_timeout,
        token_timeout=settings.token_timeout,
        request_timeout=settings.request_timeout,
        heartbeat_interval=settings.heartbeat_interval,
        heartbeat_timeout=settings.heartbeat_timeout,
        model_memory=settings.model_memory,
        keys=settings.key_limits,
        anonymous=settings.anonymous_limits,
    )


def _calm_garbage_collector() -> None:
    """Look for cycles less often, and never among what was made at the start.

    With Python's defaults, a fifth of a busy balancer's time went into looking.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def workers_of(pipes: Pipes | None) -> Workers | None:
    """What agents are told of the workers, where this is one of several."""
    if pipes is None:
        return None
    return Workers(pipes.place.run, pipes.place.num, lambda: pipes.living)


def _announce(
    addresses: Mapping[str, Address], certificates: Certificates | None, pipes: Pipes | None
) -> None:
    ready = partial(lifecycle.ready, "balancer") if pipes is None else pipes.ready
    scheme = "http" if certificates is None else "https"
    logger.info("balancer is ready", extra=context(**addresses, scheme=scheme))
    logger.info("dashboard at %s://%s/", scheme, addresses["management"])
    ready(**addresses, **({} if scheme == "http" else {"scheme": scheme}))


async def _drain(runtime: FleetRuntime, hub: EventHub, within: float) -> None:
    num = runtime.totals().num_requests
    logger.info("draining: %d requests may finish within %g s", num, within)
    await runtime.drain(within)
    hub.close()
    runtime.goodbye()
    logger.info("drained")
