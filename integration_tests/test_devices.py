"""An agent whose model lies on a device that vanishes, or that runs out of memory."""

import asyncio
from typing import Any

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet, until
from tests.rpc_device import RpcDevice

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 2**20
NUM_TOKENS = 60


async def view(fleet: Fleet, name: str) -> dict[str, Any]:
    """The agent of this name, once it is there."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = [each for each in await fleet.view("agents") if each["name"] == name]
        return len(found) == 1

    await until(is_there)
    return found[0]


async def test_a_device_that_vanishes(bare_fleet: Fleet) -> None:
    """Its agent's requests move, those of others notice nothing, and it is back with its device."""
    with RpcDevice(96 * MIB) as device:
        settings = {"slots": 1, "context_size": LONG_CONTEXT, "host_cache": 0, "gpu_layers": -1}
        agent = await bare_fleet.start_agent(name="on-device", rpc=device.address, **settings)
        [*_, gpu] = (await view(bare_fleet, "on-device"))["devices"]
        assert (gpu["name"], gpu["memory"]["total"]) == ("RPC0", 96 * MIB)
        assert device.used > 7 * MIB  # the model's file has as much
        await bare_fleet.hold()
        body = ENDLESS | {"max_tokens": NUM_TOKENS}
        moving = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, body))
        await bare_fleet.until_streaming(1)
        await bare_fleet.start_agent(name="beside", **settings)
        await bare_fleet.hold()
        staying = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, body))
        await bare_fleet.until_streaming(2)

        device.vanish()
        await bare_fleet.let_go()
        moved, stayed = await asyncio.gather(moving, staying)
        assert moved.text == stayed.text
        assert [each.end["timings"]["moves"] for each in (moved, stayed)] == [1, 0]
        assert {each.end["agent"] for each in (moved, stayed)} == {"beside"}

        def is_lost(issue: dict[str, Any]) -> bool:
            words = f"--rpc: {device.address} cannot be reached"
            return issue["code"] == "engine_crashed" and words in issue["message"]

        async def says_why() -> bool:
            return any(map(is_lost, (await view(bare_fleet, "on-device"))["issues"]))

        await until(says_why)

    with RpcDevice(96 * MIB, device.address) as device:

        async def is_back() -> bool:
            return bool((await view(bare_fleet, "on-device"))["slots"]["total"] == 1)

        await until(is_back)
        assert device.used > 7 * MIB
        assert agent.process.returncode is None


async def test_a_device_that_runs_out_of_memory(bare_fleet: Fleet) -> None:
    """What needs more than is left is refused with the reason, and the rest goes on."""
    with RpcDevice(96 * MIB) as device:
        agent = await bare_fleet.start_agent(slots=1, rpc=device.address, gpu_layers=-1)
        url = f"{bare_fleet.inference}/v1/embeddings"
        body = {"model": "arriero-demo", "input": "What is a slot?"}
        device.limit(device.used)
        async with bare_fleet.http.post(url, json=body) as refused:
            error = (await refused.json())["error"]
            assert refused.status == 500, error
            assert "there is no room for embeddings" in error["message"]
        case = plain_cases()[0]
        answer = await generate(bare_fleet.http, bare_fleet.inference, case.body)
        assert answer.text == case.answer
        device.limit(96 * MIB)
        async with bare_fleet.http.post(url, json=body) as response:
            assert response.status == 200, await response.text()
        assert len(agent.engine_pids) == 1
