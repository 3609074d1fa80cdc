"""Makes the parts of a balancer from the settings, and connects them."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from ..shared.lifecycle import StartupError
from ..shared.messages import Issue
from ..shared.tls.key_pair import KeyPair, TlsFileError
from ..shared.tracing.open_telemetry import open_tracer
from ..shared.tracing.span_queue import QueueNumbers
from .access.access import Access
from .access.key_service import KeyService
from .access.open_access import open_access
from .access.session_service import SessionService
from .api.anthropic.threads import Thread
from .api.conversation_store import MAX_ENTRIES, ConversationStore
from .api.conversations import Conversations
from .api.links.fetching import Fetcher
from .api.links.filling import LinkFiller
from .api.openai.batches.line_handlers import LineHandlers
from .api.openai.conversations.kept import KeptConversation
from .api.openai.responses.stored import Stored
from .api.transport.bodies import MAX_BODY_BYTES, Bodies
from .api.transport.doors import Doors
from .api.transport.fault_reports import FaultReports
from .api.transport.hosts import AllowedHosts
from .cluster.cluster_view import ClusterView
from .cluster.peering import cluster_view_of, open_peers
from .cluster.peers import Peers
from .cluster.worker import HubPeerStore, Pipes
from .diary.diary import Diary
from .durable.conversation_service import ConversationService
from .durable.request_service import RequestService, caller_now
from .fleet.caller import Account
from .fleet.core.fleet import Fleet
from .fleet.limits import Limits
from .fleet.runtime.fleet_runtime import FleetRuntime
from .fleet.runtime.retained_requests import MAX_RETAINED, RetainedRequests
from .fleet.shares import Shares
from .history.recorder import Recorders
from .jobs.batch_run import callers
from .jobs.blobs import BlobsAway
from .jobs.files_place import FileLimits, place_beside
from .jobs.jobs import Jobs, open_jobs
from .management import troubles
from .management.answer_types import Trouble
from .management.events import EventHub
from .management.metrics.metrics import Metrics
from .management.steering.desired_state_service import DesiredStateService
from .management.steering.drains import DrainService
from .persistence import Persistence
from .settings import BalancerSettings
from .store.conversations import ConversationBounds
from .store.health import combined
from .store.health import issues as store_issues
from .store.port import StoreAway
from .store.records import StoreStatus
from .store.retained_records import RetainedBounds
from .tls.certificates import Certificates, watch_expiry
from .tracing import TraceRecorder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a balancer, which both ports share."""

    metrics: Metrics
    persistence: Persistence
    runtime: FleetRuntime
    hub: EventHub
    desired_state: DesiredStateService
    drains: DrainService
    diary: Diary
    conversations: Conversations
    conversation_service: ConversationService | None
    retained: RetainedRequests
    request_service: RequestService | None
    bodies: Bodies
    hosts: AllowedHosts
    inference_hosts: AllowedHosts
    reports: FaultReports
    doors: Doors
    certificates: Certificates | None
    access: Access
    keys: KeyService
    sessions: SessionService
    jobs: Jobs | None
    peers: Peers | None
    cluster: ClusterView
    pipes: Pipes | None

    def store_statuses(self) -> dict[str, StoreStatus]:
        """Return the store's status for each task that writes to the store.

        The keys name what the task writes.
        """
        history, num_saves = self.persistence.writer.status(), int(self.desired_state.is_saving)
        statuses = {"history": replace(history, num_pending=history.num_pending + num_saves)}
        if self.request_service is not None:
            statuses["requests"] = self.request_service.status()
        if self.conversation_service is not None:
            statuses["conversations"] = self.conversation_service.status()
        return statuses

    def store_status(self) -> StoreStatus:
        """Return the store's status over all tasks."""
        return combined(self.store_statuses().values())

    def issues(self) -> tuple[Issue, ...]:
        """Return this balancer's issues for operators."""
        of_certificate = () if self.certificates is None else self.certificates.issues()
        return (*store_issues(self.store_status()), *self.access.issues(), *of_certificate)

    def troubles(self) -> list[Trouble]:
        """Return all troubles except the issues of agents."""
        views = self.runtime.views
        waiting = views.waiting_by_model()
        return [
            *troubles.of_models(views.models(), views.adapters(), waiting),
            *troubles.of_hosts(self.diary.lost_hosts),
            *troubles.of_balancer(self.issues()),
            *troubles.of_refusals(self.doors.going_on()),
        ]

    def work(self, settings: BalancerSettings) -> list[Coroutine[None, None, None]]:
        """Return the coroutines that must run as long as the balancer runs."""
        work = [
            self.runtime.run(),
            self.hub.run(),
            self.persistence.run(self.runtime.views.totals),
            self.diary.run(),
        ]
        if self.jobs is not None:
            work.append(self.jobs.run())
        if self.request_service is not None:
            work.append(self.request_service.run())
        if self.conversation_service is not None:
            work.append(self.conversation_service.run())
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
    """Make the parts, which `until_the_end` closes. Raises `StartupError`."""
    metrics = Metrics()
    persistence = await Persistence.open(
        settings.state, None if pipes is None else HubPeerStore(pipes)
    )
    until_the_end.push_async_callback(persistence.close)
    runtime = runtime_of(settings, persistence, metrics, until_the_end)
    access = await _watched_access(settings, persistence, runtime, until_the_end)
    conversations, conversation_service = open_conversations(settings, persistence)
    bodies = bodies_of(settings, metrics, access, runtime.memory, until_the_end)
    retained, request_service = retained_requests(settings, persistence, runtime, access)
    desired_state = DesiredStateService(runtime, persistence.store, persistence.writer.health)
    drains = DrainService(runtime, persistence.store)
    keys = KeyService(access, persistence.store)
    diary = Diary(runtime, persistence.store)
    sessions = SessionService(access, persistence.store)
    until_the_end.callback(sessions.stop)
    jobs = await open_batch_jobs(
        settings, persistence, runtime, access, conversations, bodies, until_the_end
    )
    if jobs is not None:
        access.listen(lambda _holder, _error: jobs.key_ended())
    peers = open_peers(
        settings.balancer_name,
        persistence,
        runtime,
        desired_state=desired_state,
        drains=drains,
        keys=keys,
        diary=diary,
        url=settings.public_url,
        render=metrics.render,
        sessions=sessions,
        requests=request_service,
        jobs=jobs,
    )
    workers = {} if pipes is None else pipes.place.names(settings.balancer_name)
    cluster = cluster_view_of(peers, workers)
    persistence.history.recorder.here = lambda: cluster.here
    return Parts(
        metrics=metrics,
        persistence=persistence,
        runtime=runtime,
        hub=EventHub(runtime, cluster),
        desired_state=desired_state,
        drains=drains,
        diary=diary,
        conversations=conversations,
        conversation_service=conversation_service,
        retained=retained,
        request_service=request_service,
        bodies=bodies,
        hosts=hosts_of(settings),
        inference_hosts=hosts_of(settings, settings.allowed_origin),
        reports=FaultReports(metrics, is_strict=settings.strict_fields),
        doors=Doors(metrics, partial(diary.note, "refused")),
        certificates=certificates_of(settings),
        access=access,
        keys=keys,
        sessions=sessions,
        jobs=jobs,
        peers=peers,
        cluster=cluster,
        pipes=pipes,
    )


def runtime_of(
    settings: BalancerSettings,
    persistence: Persistence,
    metrics: Metrics,
    until_the_end: AsyncExitStack,
) -> FleetRuntime:
    """Return the runtime of the fleet, with all recorders of requests."""
    fleet = Fleet(
        limits_of(settings),
        version=version("arriero"),
        ticket_secret=secrets.token_bytes(32),
        identity_secret=secrets.token_bytes(32),
    )
    tracer = open_tracer("arriero-balancer", version("arriero"))
    until_the_end.push_async_callback(asyncio.to_thread, tracer.close)
    metrics.figures(QueueNumbers, lambda: {(): [tracer.numbers()]})
    recorders = Recorders(metrics, persistence.history.recorder, TraceRecorder(tracer))
    runtime = FleetRuntime(fleet, recorder=recorders, tracer=tracer)
    metrics.pool("requests", runtime.memory)
    metrics.pool("answers", runtime.answers)
    return runtime


def limits_of(settings: BalancerSettings) -> Limits:
    """Return the limits of the fleet's core."""
    return Limits(
        max_buffered_requests=settings.max_buffered_requests,
        request_memory=settings.request_memory,
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
        http_hosts=settings.model_source_http,
    )


# ---- what requests come with


def bodies_of(
    settings: BalancerSettings,
    metrics: Metrics,
    access: Access,
    memory: Shares[Account],
    until_the_end: AsyncExitStack,
) -> Bodies:
    """Return the reader of request bodies, which follows links if the settings allow this."""
    fetcher = Fetcher()
    metrics.gauge(
        "media_links",
        "Links to pictures that are fetched, or wait for that.",
        lambda: fetcher.num_open,
    )
    filler = LinkFiller(fetcher.fetch, MAX_BODY_BYTES) if settings.media_urls else None
    bodies = Bodies(
        max_held_bytes=settings.request_memory // 2,
        filler=filler,
        has_keys=lambda: not access.is_open,
        memory=memory,
    )
    metrics.pool("bodies", bodies.shares)
    return until_the_end.enter_context(bodies)


def hosts_of(settings: BalancerSettings, origins: Sequence[str] = ()) -> AllowedHosts:
    """Return the allowed host names: the configured names, and the names in listening addresses.

    Web pages of `origins` may also use the port.
    """
    listening = (settings.inference_addr.host, settings.management_addr.host)
    names = [host for host in listening if ":" not in host]  # addresses need not be given
    return AllowedHosts(settings.allowed_host, origins, listening=names)


def certificates_of(settings: BalancerSettings) -> Certificates | None:
    """Return the certificate of both ports, if any. Raises `StartupError`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return Certificates(KeyPair(settings.tls_cert, settings.tls_key), settings.agent_ca)
    except TlsFileError as error:
        raise StartupError(str(error)) from error


# ---- access: the store's keys, and the one of `--admin-key-file`


async def _watched_access(
    settings: BalancerSettings,
    persistence: Persistence,
    runtime: FleetRuntime,
    until_the_end: AsyncExitStack,
) -> Access:
    """Return the access keys. If a key ends, its requests end, too. Raises `StartupError`."""
    access = await open_access(
        persistence.store, settings.admin_key_file, without_keys=settings.without_keys
    )
    access.listen(lambda holder, error: runtime.revoked(holder.owner, error))
    access.start()
    until_the_end.callback(access.stop)
    return access


# ---- conversations: in memory, and in a store that balancers share


KINDS: dict[type, tuple[str, TypeAdapter[Any]]] = {
    Stored: ("response", TypeAdapter(Stored)),
    Thread: ("thread", TypeAdapter(Thread)),
    KeptConversation: ("conversation", TypeAdapter(KeptConversation)),
}
"""The kinds of conversations, with their names in the store and their serializers.

A kind whose format changes in a later version needs a new name.
"""


def open_conversations(
    settings: BalancerSettings, persistence: Persistence
) -> tuple[Conversations, ConversationService | None]:
    """Return the conversations of this balancer, and the service that shares them with others.

    The service is `None` if only one balancer can use the store, or if conversations are off.
    """
    memory = ConversationStore(
        max_bytes=settings.responses_limit, max_age=settings.responses_max_age
    )
    if persistence.peers is None or settings.responses_limit == 0:
        return Conversations(memory), None
    bounds = ConversationBounds(
        num=MAX_ENTRIES, num_bytes=settings.responses_limit, age=settings.responses_max_age
    )
    service = ConversationService(persistence.store.conversations, bounds, KINDS)
    return Conversations(memory, service), service


# ---- requests that outlive their connections


def retained_requests(
    settings: BalancerSettings, persistence: Persistence, runtime: FleetRuntime, access: Access
) -> tuple[RetainedRequests, RequestService | None]:
    """Return the requests that outlive their connections, and the service that saves them."""
    service = request_service_of(settings, persistence, runtime, access)
    retained = RetainedRequests(
        runtime,
        max_bytes=settings.responses_limit,
        max_age=settings.responses_max_age,
        journal=None if service is None else service.journal,
    )
    if service is not None:
        service.serve(retained)
    return retained, service


def request_service_of(
    settings: BalancerSettings, persistence: Persistence, runtime: FleetRuntime, access: Access
) -> RequestService | None:
    """Return the service that saves retained requests.

    Returns `None` if the store is in memory or the settings turn retention off.
    """
    if not persistence.store.is_lasting or settings.responses_limit == 0:
        return None
    bounds = RetainedBounds(
        num=MAX_RETAINED, num_bytes=settings.responses_limit, age=settings.responses_max_age
    )
    return RequestService(
        persistence.store.retained, bounds, partial(caller_now, access), runtime.views.engine_of
    )


# ---- files and batches


PATIENCE = 120.0
"""Maximum seconds after the start for which lines wait for an unknown model."""


async def open_batch_jobs(
    settings: BalancerSettings,
    persistence: Persistence,
    runtime: FleetRuntime,
    access: Access,
    conversations: Conversations,
    bodies: Bodies,
    until_the_end: AsyncExitStack,
) -> Jobs | None:
    """Return files and batches, or `None` without storage for files. Raises `StartupError`."""
    place = settings.files or place_beside(settings.state, until_the_end)
    if place is None:
        return None
    try:
        return await open_jobs(
            persistence.store.jobs,
            place,
            FileLimits(settings.max_file_size, settings.files_limit),
            fleet=runtime,
            handle_line=LineHandlers(runtime, conversations, bodies).handle_line,
            caller_of=callers(access, outlive_keys=settings.batches_outlive_keys),
            patience=min(PATIENCE, settings.model_memory),
            until_the_end=until_the_end,
        )
    except (BlobsAway, OSError) as error:
        raise StartupError(f"--files: {error}") from error
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the files: {error}") from error
