"""The management port of a balancer whose store is in memory."""

from aiohttp import web

from arriero.balancer.access.access import Access
from arriero.balancer.access.key_service import KeyService
from arriero.balancer.access.session_service import SessionService
from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.transport.bodies import Bodies
from arriero.balancer.api.transport.doors import Doors
from arriero.balancer.api.transport.fault_reports import FaultReports
from arriero.balancer.api.transport.hosts import AllowedHosts
from arriero.balancer.cluster.cluster_view import ClusterView
from arriero.balancer.cluster.peers import Peers
from arriero.balancer.diary.diary import Diary
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.runtime.retained_requests import RetainedRequests
from arriero.balancer.management import routes
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.management.steering.drains import DrainService
from arriero.balancer.parts import Parts
from arriero.balancer.persistence import Persistence
from arriero.balancer.settings import BalancerSettings
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl
from arriero.shared.inference import AgentId


class Others(Peers):
    """Other balancers; `retried` are the agents that they let try again."""

    def __init__(self) -> None:
        self.retried: list[AgentId] = []

    async def retry(self, agent: AgentId) -> None:
        self.retried.append(agent)


def management_app(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    *,
    desired_state: DesiredStateService,
    access: Access | None = None,
    keys: KeyService | None = None,
    persistence: Persistence | None = None,
    peers: Peers | None = None,
    cluster: ClusterView | None = None,
) -> web.Application:
    """The app over these parts, and over empty ones; the store ends with it."""
    access = Access() if access is None else access
    persistence = Persistence(Store(StoreUrl("memory"))) if persistence is None else persistence
    parts = Parts(
        metrics=metrics,
        persistence=persistence,
        runtime=runtime,
        hub=hub,
        desired_state=desired_state,
        drains=DrainService(runtime, persistence.store),
        diary=Diary(runtime, persistence.store),
        conversations=Conversations(),
        conversation_service=None,
        retained=RetainedRequests(runtime),
        request_service=None,
        bodies=Bodies(),
        hosts=AllowedHosts(),
        inference_hosts=AllowedHosts(),
        reports=FaultReports(),
        doors=Doors(metrics, lambda _who, _what: None),
        certificates=None,
        access=access,
        keys=KeyService(access, persistence.store) if keys is None else keys,
        sessions=(sessions := SessionService(access, persistence.store)),
        jobs=None,
        peers=peers,
        cluster=cluster or ClusterView(),
        pipes=None,
    )
    app = routes.management_app(parts, BalancerSettings(), {})

    async def close(_app: web.Application) -> None:
        sessions.stop()
        await persistence.close()

    app.on_cleanup.append(close)
    return app
