"""Connects the parts of a balancer with other balancers over the same store."""

import time
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version

from ..access.key_service import KeyService
from ..access.session_service import SessionService
from ..diary.diary import Diary
from ..durable.request_service import RequestService
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..jobs.jobs import Jobs
from ..management.answer_types import Balancer
from ..management.balancers import ListBalancers
from ..management.steering.desired_state_service import DesiredStateService
from ..management.steering.drains import DrainService
from ..persistence import Persistence
from .cluster_view import ClusterView
from .peer_store import Peer
from .peers import Peers, PeersStatus
from .responder import Render, Responder, no_metrics


def open_peers(
    name: str,
    persistence: Persistence,
    runtime: FleetRuntime,
    *,
    desired_state: DesiredStateService,
    drains: DrainService,
    keys: KeyService,
    diary: Diary,
    url: str | None = None,
    render: Render = no_metrics,
    sessions: SessionService,
    requests: RequestService | None = None,
    jobs: Jobs | None = None,
) -> Peers | None:
    """Connect this balancer with the others; `None` if the store cannot be shared.

    Clients reach this balancer at `url`, if known. `render` writes its metrics.
    """
    if persistence.peers is None:
        return None
    responder = Responder(runtime, render, persistence.history)
    peers = Peers(
        persistence.peers,
        runtime,
        {
            "desired_state": desired_state.reconcile,
            "keys": keys.reconcile,
            "sessions": sessions.reconcile,
            "batches": reads_none if jobs is None else jobs.reconcile,
            "cancels": reads_none if requests is None else requests.reconcile,
            "cordons": drains.reconcile,
            "diary": diary.reconcile,
        },
        run=uuid.uuid4().hex,
        name=name,
        version=version("arriero"),
        url=url,
        respond=responder.respond,
        on_lead=lambda: diary.note(
            "leader_changed", name, "it leads: it decides which agent serves which model"
        ),
    )
    diary.leads = lambda: peers.status().epoch is not None
    return peers


async def reads_none() -> bool:
    """Do nothing, because the store has no such records."""
    return True


def cluster_view_of(peers: Peers | None, workers: Mapping[str, int]) -> ClusterView:
    """Return the view over all balancers; there may be only this one.

    `workers` are the processes behind this balancer's port, if there are several; see
    `ClusterView`.
    """
    if peers is None:
        return ClusterView()
    ask = peers.inquiries.ask
    return ClusterView(ask, lambda: peers.here, peers.cancel, workers=workers)


def balancers_of(
    peers: Peers | None, alone: ListBalancers, clock: Callable[[], float] = time.time
) -> ListBalancers:
    """Return a function that lists all live balancers, as the store last listed them.

    If the store is not shared, the function returns `alone`. Before the first list, it returns
    none.
    """
    if peers is None:
        return alone

    def listed() -> list[Balancer]:
        status = peers.status()
        return [_shown(peer, status, clock()) for peer in status.peers]

    return listed


def _shown(peer: Peer, status: PeersStatus, now: float) -> Balancer:
    is_here, leads_here = peer.beat.run == status.run, status.epoch is not None
    return Balancer(
        name=peer.beat.name,
        url=peer.beat.url,
        version=peer.beat.version,
        leads=leads_here if is_here else peer.beat.is_leading and not leads_here,
        is_here=is_here,
        since=peer.started_at,
        last_heartbeat=now - peer.age - status.reported_ago,
    )
