"""Listening on one port."""

import aiohttp.web
import pytest

from arriero.balancer.api.transport.connections import Connections
from arriero.balancer.ports import check_exposure, connections_of, serve
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
