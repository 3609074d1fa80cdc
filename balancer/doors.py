"""Both ports: what each serves of the parts, and where it listens."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from aiohttp import web

from ..shared.quantities import Address
from .api.app import inference_app
from .api.common.opening import EARLY_HEADERS_KEY, no_recall
from .api.transport.file_limit import raise_file_limit
from .fleet.runtime.agent_socket import Workers
from .management.balancers import alone
from .management.routes import management_app, metrics_route
from .management.steering.routes import by_nobody
from .parts import Parts
from .peering import balancers_of, session_teller
from .ports import connections_of, serve
from .settings import BalancerSettings
from .workers.place import Pipes


async def open_ports(
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
        app[EARLY_HEADERS_KEY] = settings.early_headers
        connections = connections_of(settings, tls.get(name))
        parts.metrics.collect_connections(name, partial(getattr, connections, "num_open"))
        parts.metrics.collect_floods(name, partial(getattr, connections, "num_flooded"))
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
        store_status=parts.store_status,
        bodies=parts.bodies,
        hosts=parts.hosts,
        agents_show_certificates=settings.agent_ca is not None,
        workers=workers_of(parts.pipes),
        ports=ports,
        access=parts.access,
        keys=parts.keys,
        sessions=parts.sessions,
        jobs=parts.jobs,
        issues=parts.issues,
        tell_session=session_teller(parts.peers),
        everywhere=parts.everywhere,
        retry_elsewhere=by_nobody if parts.peers is None else parts.peers.retry,
        list_balancers=balancers_of(
            parts.peers, alone(settings.balancer_name, settings.public_url)
        ),
    )


def workers_of(pipes: Pipes | None) -> Workers | None:
    """What agents are told of the workers, where this is one of several."""
    if pipes is None:
        return None
    return Workers(pipes.place.run, pipes.place.num, lambda: pipes.living)
