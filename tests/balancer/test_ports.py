"""Both ports: opened, listened on, and only where that is safe."""

import ssl
from contextlib import AsyncExitStack

import aiohttp
import aiohttp.web
import pytest

from arriero.balancer.api.transport.connections import Connections
from arriero.balancer.parts import assemble
from arriero.balancer.ports import (
    Protection,
    check_exposure,
    connections_of,
    open_ports,
    remedies,
    serve,
    why_not,
)
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


async def breaks(_request: aiohttp.web.Request) -> aiohttp.web.Response:
    raise KeyError("it does not fit")


def cannot_serve() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it has no certificate


@pytest.mark.parametrize("connections", [Connections(), Connections(tls=cannot_serve)])
async def test_a_port_that_answers_nothing_is_not_opened(connections: Connections) -> None:
    app = aiohttp.web.Application()
    app.add_routes([aiohttp.web.get("/health", breaks)])
    with pytest.raises(StartupError, match=r"--a: a request to itself .* with aiohttp 3\."):
        async with serve(app, Address("127.0.0.1", 0), "--a", connections):
            pass
    assert connections.num_open == 0


def test_limits_are_those_of_the_settings() -> None:
    settings = BalancerSettings(header_timeout=1, write_timeout=2, max_connections=1)
    connections = connections_of(settings)
    assert (connections.header_timeout, connections.write_timeout) == (1, 2)
    assert connections.tls is None
    connections.num_open = 2
    assert connections.are_too_many


OPEN = {"inference_addr": "0.0.0.0:0"}
SECURED = OPEN | {"tls_cert": "a.pem", "tls_key": "a.key"}


@pytest.mark.parametrize(
    ("given", "has_keys", "missing"),
    [
        (OPEN, False, ["--inference-addr: other hosts reach", "keys bootstrap", "--tls-cert FILE"]),
        (OPEN, True, ["--tls-cert FILE"]),
        (SECURED, False, ["keys bootstrap"]),
    ],
)
def test_a_port_is_not_opened_without_protection(
    given: dict[str, str], has_keys: bool, missing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StartupError) as error:
        check_exposure(BalancerSettings.model_validate(given), has_keys=has_keys)
    assert all(each in str(error.value) for each in missing)
    anyhow = BalancerSettings.model_validate(given | {"insecure": "true"})
    check_exposure(anyhow, has_keys=has_keys)
    assert "--insecure" in caplog.text


def test_a_protected_port_or_one_of_this_host_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    check_exposure(BalancerSettings.model_validate(SECURED), has_keys=True)
    check_exposure(BalancerSettings(), has_keys=False)
    assert caplog.text == ""


ANYWHERE = {"inference_addr": "127.0.0.1:0", "management_addr": "127.0.0.1:0"}


async def test_each_port_has_its_routes_and_not_the_others() -> None:
    settings = BalancerSettings.model_validate(ANYWHERE)
    async with AsyncExitStack() as ports, aiohttp.ClientSession() as http:
        parts = await assemble(settings, ports)
        addresses = await open_ports(parts, settings, ports)
        found = {}
        for name, address in addresses.items():
            for path in ("/v1/models", "/api/v1/agents", "/metrics"):
                async with http.get(f"http://{address}{path}") as response:
                    found[name, path] = response.status
    assert found == {
        ("inference", "/v1/models"): 200,
        ("inference", "/api/v1/agents"): 404,
        ("inference", "/metrics"): 404,
        ("management", "/v1/models"): 404,
        ("management", "/api/v1/agents"): 200,
        ("management", "/metrics"): 200,
    }


async def test_metrics_are_for_clients_where_that_is_asked() -> None:
    settings = BalancerSettings.model_validate(ANYWHERE | {"metrics_for_clients": True})
    async with AsyncExitStack() as ports, aiohttp.ClientSession() as http:
        parts = await assemble(settings, ports)
        addresses = await open_ports(parts, settings, ports)
        async with http.get(f"http://{addresses['inference']}/metrics") as response:
            assert response.status == 200


LOCAL = {"--inference-addr": Address("127.0.0.1", 8061), "--management-addr": Address("::1", 8060)}
REACHED = LOCAL | {"--management-addr": Address("0.0.0.0", 8060)}


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("has_tls", [True, False])
def test_only_keys_and_tls_together_open_a_port(has_keys: bool, has_tls: bool) -> None:
    protection = Protection(has_keys=has_keys, has_tls=has_tls)
    assert why_not(LOCAL, protection) is None
    refusal = why_not(REACHED, protection)
    assert (refusal is None) == (has_keys and has_tls)
    if refusal is not None:
        assert refusal.startswith("--management-addr: other hosts reach 0.0.0.0:8060, and ")
        assert ("read" in refusal) == (not has_tls)
        assert ("anybody may use it" in refusal) == (not has_keys)


@pytest.mark.parametrize(("has_keys", "has_tls"), [(True, False), (False, True), (False, False)])
def test_the_commands_that_mend_it(has_keys: bool, has_tls: bool) -> None:
    told = remedies(Protection(has_keys=has_keys, has_tls=has_tls))
    assert ("arriero keys bootstrap --state URL" in told) == (not has_keys)
    assert ("balancer --tls-cert FILE --tls-key FILE" in told) == (not has_tls)
    assert "--insecure" in told
    assert "\n" not in told
