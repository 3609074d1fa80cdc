"""Listening on one port."""

import aiohttp.web
import pytest

from arriero.balancer.api.transport.connections import Connections
from arriero.balancer.ports import connections_of, serve
from arriero.balancer.settings import BalancerSettings
from arriero.shared.lifecycle import StartupError
from arriero.shared.quantities import Address


async def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(StartupError, match=r"--inference-addr: cannot listen on 192\.0\.2\.1:80"):
        async with serve(
            aiohttp.web.Application(), Address("192.0.2.1", 80), "--inference-addr", Connections()
        ):
            pass


async def test_a_port_that_is_taken_says_what_to_do() -> None:
    app = aiohttp.web.Application()
    async with serve(app, Address("127.0.0.1", 0), "--a", Connections()) as address:
        with pytest.raises(StartupError, match=f"--b: cannot listen on {address}: something else"):
            async with serve(aiohttp.web.Application(), address, "--b", Connections()):
                pass


def test_limits_are_those_of_the_settings() -> None:
    settings = BalancerSettings(header_timeout=1, write_timeout=2, max_connections=1)
    connections = connections_of(settings)
    assert (connections.header_timeout, connections.write_timeout) == (1, 2)
    assert connections.tls is None
    connections.num_open = 2
    assert connections.are_too_many
