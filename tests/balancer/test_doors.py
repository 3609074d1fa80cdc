"""Both ports, as the balancer opens them."""

from contextlib import AsyncExitStack

import aiohttp

from arriero.balancer.doors import open_ports, workers_of
from arriero.balancer.parts import assemble
from arriero.balancer.settings import BalancerSettings

ANYWHERE = {"inference_addr": "127.0.0.1:0", "management_addr": "127.0.0.1:0"}


async def test_each_port_has_its_doors_and_not_the_others() -> None:
    settings = BalancerSettings.model_validate(ANYWHERE)
    async with AsyncExitStack() as ports, aiohttp.ClientSession() as http:
        parts = await assemble(settings, ports)
        addresses = await open_ports(parts, settings, ports)
        found = {
            (name, path): (await http.get(f"http://{address}{path}")).status
            for name, address in addresses.items()
            for path in ("/v1/models", "/api/v1/agents", "/metrics")
        }
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


def test_one_process_has_no_workers() -> None:
    assert workers_of(None) is None
