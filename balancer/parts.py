"""What a balancer is made of: its parts, made from the settings and tied together."""

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from ..shared.messages import Issue
from ..shared.tracing.open_telemetry import open_tracer
from .access.access import Access
from .access.key_keeper import KeyKeeper
from .access.sessions import Sessions
from .admission import caller_now, keeper_of, open_access
from .api.conversations import Conversations
from .api.links.fetching import Fetcher
from .api.links.filling import LinkFiller
from .api.transport.bodies import MAX_BODY_BYTES, Bodies
from .api.transport.door_reports import DoorReports
from .api.transport.hosts import AllowedHosts
from .batch_jobs import open_batch_jobs
from .durable.conversation_keeper import ConversationKeeper
from .durable.request_keeper import KeptKeeper
from .fleet.core.fleet import Fleet
from .fleet.limits import Limits
from .fleet.runtime.fleet_runtime import FleetRuntime
from .fleet.runtime.kept_requests import MAX_KEPT, KeptRequests
from .history.recorder import Recorders
from .jobs.jobs import Jobs
from .management.elsewhere.everywhere import Everywhere
from .management.events import EventHub
from .management.metrics.metrics import Metrics
from .management.steering.drains import DrainKeeper
from .management.steering.keeper import DesiredStateKeeper
from .peering import everywhere_of, open_peers
from .peers.peers import Peers
from .persistence import Persistence
from .ports import certificates_of, hosts_of
from .settings import BalancerSettings
from .shared_conversations import open_conversations
from .store.health import combined
from .store.health import issues as store_issues
from .store.kept_records import KeptBounds
from .store.records import StoreStatus
from .tls.certificates import Certificates, watch_expiry
from .tracing.trace_recorder import TraceRecorder
from .workers.hub_store import HubPeerStore
from .workers.place import Pipes


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a balancer is made of; both ports share it."""

    metrics: Metrics
    persistence: Persistence
    runtime: FleetRuntime
    hub: EventHub
    keeper: DesiredStateKeeper
    drains: DrainKeeper
    conversations: Conversations
    conversation_keeper: ConversationKeeper | None
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

    def store_statuses(self) -> dict[str, StoreStatus]:
        """How the store is for each task that writes to it, by what it writes."""
        statuses = {"history": self.persistence.writer.status()}
        if self.kept_keeper is not None:
            statuses["requests"] = self.kept_keeper.status()
        if self.conversation_keeper is not None:
            statuses["conversations"] = self.conversation_keeper.status()
        return statuses

    def store_status(self) -> StoreStatus:
        """How the store is for all of them."""
        return combined(self.store_statuses().values())

    def issues(self) -> tuple[Issue, ...]:
        """What operators should do about this balancer."""
        of_certificate = () if self.certificates is None else self.certificates.issues()
        return (*store_issues(self.store_status()), *of_certificate)

    def work(self, settings: BalancerSettings) -> list[Coroutine[None, None, None]]:
        """What runs as long as the balancer does."""
        work = [
            self.runtime.run(),
            self.hub.run(),
            self.persistence.run(self.runtime.views.totals, self.keeper.told),
        ]
        if self.jobs is not None:
            work.append(self.jobs.run())
        if self.kept_keeper is not None:
            work.append(self.kept_keeper.run())
        if self.conversation_keeper is not None:
            work.append(self.conversation_keeper.run())
        if self.peers is not None:
            work.append(self.peers.run())
        if settings.state.kind == "sqlite":  # so other programs may write to it, too
            work.append(self.keys.follow())
        if self.certificates is not None:
            work.append(watch_expiry(self.certificates))
        return work


async def assemble(
    settings: BalancerSettings, until_the_end: AsyncExitStack, pipes: Pipes | None = None
) -> Parts:
    """Make the parts; `until_the_end` closes them. Raises `StartupError`."""
    metrics = Metrics()
    persistence = await Persistence.open(
        settings.state, None if pipes is None else HubPeerStore(pipes)
    )
    until_the_end.push_async_callback(persistence.close)
    runtime = runtime_of(settings, persistence, metrics, until_the_end)
    access = await _watched_access(settings, persistence, runtime, until_the_end)
    conversations, conversation_keeper = open_conversations(settings, persistence)
    bodies = bodies_of(settings, metrics, until_the_end)
    kept, kept_keeper = kept_requests(settings, persistence, runtime, access)
    desired_state = DesiredStateKeeper(runtime, persistence.writer.persist)
    drains = DrainKeeper(runtime, persistence.store)
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
        conversations=conversation_keeper,
    )
    workers = {} if pipes is None else pipes.place.names(settings.balancer_name)
    everywhere = everywhere_of(peers, workers)
    persistence.history.recorder.here = lambda: everywhere.here
    jobs = await open_batch_jobs(
        settings, persistence, runtime, access, conversations, bodies, until_the_end
    )
    return Parts(
        metrics=metrics,
        persistence=persistence,
        runtime=runtime,
        hub=EventHub(runtime, everywhere),
        keeper=desired_state,
        drains=drains,
        conversations=conversations,
        conversation_keeper=conversation_keeper,
        kept=kept,
        kept_keeper=kept_keeper,
        bodies=bodies,
        hosts=hosts_of(settings),
        reports=DoorReports(metrics, is_strict=settings.strict_fields),
        certificates=certificates_of(settings),
        access=access,
        keys=keys,
        sessions=sessions,
        jobs=jobs,
        peers=peers,
        everywhere=everywhere,
        pipes=pipes,
    )


def runtime_of(
    settings: BalancerSettings,
    persistence: Persistence,
    metrics: Metrics,
    until_the_end: AsyncExitStack,
) -> FleetRuntime:
    """The fleet's core as it runs, with all that records what becomes of requests."""
    fleet = Fleet(
        limits_of(settings),
        version=version("arriero"),
        ticket_secret=secrets.token_bytes(32),
        identity_secret=secrets.token_bytes(32),
    )
    tracer = open_tracer("arriero-balancer", version("arriero"))
    until_the_end.push_async_callback(asyncio.to_thread, tracer.close)
    metrics.collect_spans(tracer.numbers)
    recorders = Recorders(metrics, persistence.history.recorder, TraceRecorder(tracer))
    return FleetRuntime(fleet, recorder=recorders, tracer=tracer)


async def _watched_access(
    settings: BalancerSettings,
    persistence: Persistence,
    runtime: FleetRuntime,
    until_the_end: AsyncExitStack,
) -> Access:
    """Who may come in; the requests of a key that is revoked end. Raises `StartupError`."""
    access = await open_access(persistence, settings.admin_key_file)
    access.listen(lambda holder, error: runtime.revoked(holder.owner, error))
    access.start()
    until_the_end.callback(access.stop)
    return access


def bodies_of(
    settings: BalancerSettings, metrics: Metrics, until_the_end: AsyncExitStack
) -> Bodies:
    """What reads requests' bodies, and follows the links in them where that is allowed."""
    fetcher = Fetcher()
    metrics.collect_links(lambda: fetcher.num_open)
    filler = LinkFiller(fetcher.fetch, MAX_BODY_BYTES) if settings.media_urls else None
    return until_the_end.enter_context(Bodies(filler=filler))


def kept_requests(
    settings: BalancerSettings, persistence: Persistence, runtime: FleetRuntime, access: Access
) -> tuple[KeptRequests, KeptKeeper | None]:
    """Requests that outlive their connections, and what makes them outlive the balancer."""
    keeper = kept_keeper_of(settings, persistence, runtime, access)
    kept = KeptRequests(
        runtime,
        max_bytes=settings.responses_limit,
        max_age=settings.responses_max_age,
        journal=None if keeper is None else keeper.journal,
    )
    if keeper is not None:
        keeper.serve(kept)
    return kept, keeper


def kept_keeper_of(
    settings: BalancerSettings, persistence: Persistence, runtime: FleetRuntime, access: Access
) -> KeptKeeper | None:
    """What makes kept requests outlive the balancer, where the store and the settings keep any."""
    if not persistence.store.is_lasting or settings.responses_limit == 0:
        return None
    bounds = KeptBounds(
        num=MAX_KEPT, num_bytes=settings.responses_limit, age=settings.responses_max_age
    )
    return KeptKeeper(
        persistence.store.kept, bounds, partial(caller_now, access), runtime.views.engine_of
    )


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
