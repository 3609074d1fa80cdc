"""Both ports: their parts, their addresses, and the check that opening them is safe."""

import asyncio
import errno
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from aiohttp import web

from ..shared.lifecycle import StartupError
from ..shared.quantities import Address
from .access.refusals import Door
from .api.app import inference_app
from .api.common.idempotency import restore_none
from .api.endpoint import EARLY_HEADERS_KEY
from .api.transport.connections import Connections, ConnectionsRunner, raise_file_limit
from .api.transport.doors import PORT_DOORS, Doors
from .management.routes import management_app, metrics_route
from .parts import Parts
from .settings import BalancerSettings

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT = 30.0
"""Maximum seconds for the answer to the request that a port sends to itself."""
_WITHOUT_LOOPBACK = (errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT)
"""Errors on hosts where no process can reach itself, such as some sandboxes."""
LAST_WORDS = 1.0
"""Seconds after the drain in which connections can send their last bytes."""


# ---- what is opened


async def open_ports(
    parts: Parts, settings: BalancerSettings, ports: AsyncExitStack
) -> dict[str, Address]:
    """Listen on both ports until `ports` closes. Returns the addresses."""
    certificates = parts.certificates
    addresses: dict[str, Address] = {}
    apps: dict[Door, tuple[Address, web.Application]] = {
        "inference": (settings.inference_addr, _inference(parts, settings)),
        "management": (settings.management_addr, management_app(parts, settings, addresses)),
    }
    tls = {} if certificates is None else certificates.by_port()
    raise_file_limit(len(apps) * settings.max_connections)
    for name, (address, app) in apps.items():
        app[EARLY_HEADERS_KEY] = settings.early_headers
        app[PORT_DOORS] = (parts.doors, name)
        connections = connections_of(settings, tls.get(name), parts.doors)
        parts.metrics.gauge(
            f"{name}_connections",
            f"Open connections to the {name} port.",
            partial(getattr, connections, "num_open"),
        )
        parts.metrics.gauge(
            f"{name}_flooded_sockets",
            f"WebSockets of the {name} port that were closed: too many pings or tiny frames.",
            partial(getattr, connections, "num_flooded"),
        )
        parts.metrics.pool(f"{name}_connections", connections.shares)
        is_shared = parts.pipes is not None
        port = serve(app, address, f"--{name}-addr", connections, is_shared=is_shared)
        addresses[name] = await ports.enter_async_context(port)
    return addresses


def _inference(parts: Parts, settings: BalancerSettings) -> web.Application:
    return inference_app(
        parts.runtime,
        parts.conversations,
        retained=parts.retained,
        restore_retained=restore_none
        if parts.request_service is None
        else parts.request_service.restore,
        bodies=parts.bodies,
        hosts=parts.inference_hosts,
        reports=parts.reports,
        access=parts.access,
        jobs=parts.jobs,
        more_routes=[metrics_route(parts.metrics, parts.cluster)]
        if settings.metrics_for_clients
        else [],
    )


# ---- listening


def connections_of(
    settings: BalancerSettings,
    tls: Callable[[], ssl.SSLContext] | None = None,
    doors: Doors | None = None,
) -> Connections:
    """Return the limits of one port's connections.

    `tls` returns the context for each new connection. `doors` record failed TLS handshakes.
    """
    return Connections(
        header_timeout=settings.header_timeout,
        write_timeout=settings.write_timeout,
        max_connections=settings.max_connections,
        tls=tls,
        doors=doors,
    )


@asynccontextmanager
async def serve(
    app: web.Application,
    address: Address,
    flag: str,
    connections: Connections,
    *,
    is_shared: bool = False,
) -> AsyncIterator[Address]:
    """Listen within the context, which yields the address. Raises `StartupError`.

    The error names `flag`. If `is_shared`, other processes of this user listen on the address,
    too.
    """
    runner = ConnectionsRunner(app, connections, shutdown_timeout=LAST_WORDS)
    await runner.setup()
    try:
        await _check_answers(runner, flag, has_tls=connections.tls is not None)
        yield await _listen(runner, address, flag, is_shared=is_shared)
    finally:
        await runner.cleanup()


async def _check_answers(runner: web.AppRunner, flag: str, *, has_tls: bool) -> None:
    """Check that a request gets an answer. Raises `StartupError`.

    The check is needed because our connections depend on internals of aiohttp. The check listens
    on a port of its own, because other processes may serve the shared port.
    """
    if runner.server is None:
        raise RuntimeError("the runner is not set up")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            async with await loop.create_server(runner.server, "127.0.0.1", 0) as listener:
                port = listener.sockets[0].getsockname()[1]
                answer = await _asked(port, _own_tls() if has_tls else None)
    except (OSError, TimeoutError) as error:
        if error.errno in _WITHOUT_LOOPBACK:
            return
        answer = (str(error) or f"nothing within {ANSWER_TIMEOUT:g} s").encode()
    if not re.match(rb"HTTP/1.1 [234]", answer):
        first = answer.partition(b"\r\n")[0].decode(errors="replace") or "an empty answer"
        raise StartupError(
            f"{flag}: a request to itself was not answered with aiohttp {version('aiohttp')} "
            f"({first}); install the version that Arriero needs: pip install --upgrade arriero"
        )


async def _asked(port: int, tls: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.transport.abort()


def _own_tls() -> ssl.SSLContext:
    """Return the TLS context for a connection to the own port, which accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _listen(
    runner: web.AppRunner, address: Address, flag: str, *, is_shared: bool
) -> Address:
    site = web.TCPSite(runner, address.host, address.port, reuse_port=is_shared or None)
    try:
        await site.start()
    except OSError as error:
        raise StartupError(f"{flag}: cannot listen on {address}: {_remedy(error)}") from error
    host, port, *_ = runner.addresses[0]
    return Address(host, port)


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something else listens there; end it or choose another port (0 takes any free one)"
    return f"{(error.strerror or str(error)).lower()}; choose another address"


# ---- whether that is safe: to others than this host only with TLS and keys


def check_exposure(settings: BalancerSettings, *, has_keys: bool) -> None:
    """Check that addresses open to other hosts are protected. Raises `StartupError`."""
    listening = {
        "--inference-addr": settings.inference_addr,
        "--management-addr": settings.management_addr,
    }
    protection = Protection(has_keys=has_keys, has_tls=settings.tls_cert is not None)
    if (reason := why_not(listening, protection)) is None:
        return
    if not settings.insecure:
        raise StartupError(f"{reason}. {remedies(protection)}")
    logger.warning("%s; the balancer starts all the same, because of --insecure", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The protection of the ports."""

    has_keys: bool
    has_tls: bool


def why_not(listening: Mapping[str, Address], protection: Protection) -> str | None:
    """Return why the addresses, by flag, must not be opened; `None` if opening them is safe."""
    opened = [(flag, each) for flag, each in listening.items() if not each.is_loopback]
    if not opened or (protection.has_keys and protection.has_tls):
        return None
    flag, address = opened[0]
    return f"{flag}: other hosts reach {address}, and {_danger(protection)}"


def remedies(protection: Protection) -> str:
    """Return advice on missing protection."""
    missing = []
    if not protection.has_keys:
        missing.append(
            "Make a key: arriero keys bootstrap --state URL (the --state given here; with "
            "memory:// put it into a file for --admin-key-file)."
        )
    if not protection.has_tls:
        missing.append("Give a certificate: balancer --tls-cert FILE --tls-key FILE.")
    return (
        f"{' '.join(missing)} docs/access.md has both step by step. Where something else protects "
        "the ports, such as a proxy that ends TLS and checks who asks, start it with --insecure"
    )


def _danger(protection: Protection) -> str:
    if protection.has_keys:
        return "what they send can be read on the way"
    if protection.has_tls:
        return "anybody may use it"
    return "anybody may use it and read what others send"
