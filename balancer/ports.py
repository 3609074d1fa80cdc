"""Listening: whether that is safe, connections' limits, TLS, and what to say where it cannot be."""

import errno
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from ..shared.lifecycle import StartupError
from ..shared.quantities import Address
from ..shared.tls.key_pair import KeyPair, TlsFileError
from .api.transport.connections import Connections, ConnectionsRunner
from .api.transport.hosts import AllowedHosts
from .settings import BalancerSettings
from .tls.certificates import Certificates
from .tls.exposure import Protection, remedies, why_not

logger = logging.getLogger(__name__)

LAST_WORDS = 1.0
"""Seconds that connections have to take the last of what was said to them, after the drain."""


def check_exposure(settings: BalancerSettings, *, has_keys: bool) -> None:
    """Raises `StartupError` where other hosts would reach what nothing protects."""
    listening = {
        "--inference-addr": settings.inference_addr,
        "--management-addr": settings.management_addr,
    }
    protection = Protection(has_keys=has_keys, has_tls=settings.tls_cert is not None)
    if (reason := why_not(listening, protection)) is None:
        return
    if not settings.insecure:
        raise StartupError(f"{reason}. {remedies(protection)}")
    logger.warning("%s: --insecure says that something else protects it", reason)


def connections_of(
    settings: BalancerSettings, tls: Callable[[], ssl.SSLContext] | None = None
) -> Connections:
    """The limits of one port's connections; `tls` gives the context of each new one."""
    return Connections(
        header_timeout=settings.header_timeout,
        write_timeout=settings.write_timeout,
        max_connections=settings.max_connections,
        tls=tls,
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
    """Listen while inside; gives the address taken. Raises `StartupError` that names `flag`.

    `is_shared`: other processes of this user listen there, too.
    """
    runner = ConnectionsRunner(app, connections, shutdown_timeout=LAST_WORDS)
    await runner.setup()
    try:
        yield await _listen(runner, address, flag, is_shared=is_shared)
    finally:
        await runner.cleanup()


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
