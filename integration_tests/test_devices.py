"""Agents with devices: one vanishes, one runs out of memory, and models share two of them."""

import asyncio
import re
from typing import Any

import pytest

from arriero.agent.engine.pace import STEPS
from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import MODEL, Fleet, until
from tests.rpc_device import RpcDevice

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 2**20
NUM_TOKENS = 60
TOO_LONG = 16_384


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


async def test_a_context_that_is_too_long_for_a_device(bare_fleet: Fleet) -> None:
    """What is missing is named, and a context that would do; and that does."""
    wish: dict[str, Any] = {"name": "demo", "source": MODEL.absolute().as_uri(), "slots": 1}
    options = {"gpu_layers": -1, "host_cache": 0, "fit_target": 0}
    url = f"{bare_fleet.management}/api/v1/desired-state"

    async def wished(*context_sizes: int) -> None:
        models = [wish | {"context_size": each, "engine": options} for each in context_sizes]
        async with bare_fleet.http.put(url, json={"models": models}) as response:
            assert response.status == 200, await response.text()

    async def failure(code: str) -> dict[str, Any]:
        issues: list[dict[str, Any]] = []

        async def has_failed() -> bool:
            issues[:] = (await view(bare_fleet, "small"))["issues"]
            return [each["code"] for each in issues] == [code]

        await until(has_failed)
        return issues[0]

    async def is_in(state: str) -> None:
        async def is_there() -> bool:
            found = await view(bare_fleet, "small")
            return bool(found["state"] == state and not found["issues"])

        await until(is_there)

    def context_of(issue: dict[str, Any]) -> int:
        nearest = re.match(r"with a context of (\d+) tokens a slot it fits;", issue["hint"])
        assert nearest is not None, issue
        return int(nearest[1])

    with RpcDevice(96 * MIB) as device:
        await bare_fleet.start_agent(
            name="small", model=None, slots=None, context_size=None, rpc=device.address
        )
        await wished(TOO_LONG)
        issue = await failure("too_large")
        assert re.search(r"which is \d+ MiB too little$", issue["message"])
        await wished(context_of(issue))
        await is_in("ready")
        used = device.used
        await wished()
        await is_in("idle")
        device.limit(used - 4 * MIB)  # another program has the rest
        await wished(context_of(issue))
        issue = await failure("does_not_fit")
        assert re.search(r", which has about 0\.\d\d GiB too little,", issue["message"])
        other = await bare_fleet.start_agent(
            name="roomy", model=None, slots=None, context_size=None
        )
        placed = r"on roomy \(0\.\d GiB\); not on small, where it failed \(does_not_fit\)"

        async def is_placed() -> bool:
            models = {each["name"]: each for each in await bare_fleet.view("models")}
            model = models[wish["name"]]
            is_there = re.fullmatch(placed, model.get("placement", ""))
            return bool(is_there and model["status"] == "loaded")

        await until(is_placed)
        await other.terminate()
        await wished(context_of(issue))
        await is_in("ready")
        await wished()


def on_demand(name: str, device: str) -> dict[str, Any]:
    engine = {"device": device, "gpu_layers": "auto"}
    common = {"name": name, "source": MODEL.absolute().as_uri(), "preload": False, "slots": 1}
    return common | {"context_size": 4096, "engine": engine}


async def desire(fleet: Fleet, *models: dict[str, Any]) -> None:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json={"models": models}) as response:
        assert response.status == 200, await response.text()


async def lie_on(fleet: Fleet, name: str) -> dict[str, dict[str, int]]:
    """The models on each device of an agent, with their bytes."""
    devices = (await view(fleet, name))["devices"]
    return {
        each["name"]: {model["name"]: model["bytes"] for model in each["models"]}
        for each in devices
    }


async def test_a_model_makes_room_on_the_device_that_another_one_asks_for(
    bare_fleet: Fleet,
) -> None:
    """What lies elsewhere stays, though it was used longest ago; and what is preloaded stays.

    That has what is left of its device taken by another one, which puts the rest into memory.
    """
    case = plain_cases()[0]
    with RpcDevice(72 * MIB) as first, RpcDevice(72 * MIB) as second:
        await bare_fleet.start_agent(
            name="shared",
            model=None,
            slots=None,
            context_size=None,
            rpc=f"{first.address},{second.address}",
            fit_target="1MiB",
            host_cache="0",
        )

        async def ask(model: str) -> None:
            body = case.body | {"model": model}
            answer = await generate(bare_fleet.http, bare_fleet.inference, body)
            assert answer.text == case.answer, answer.end

        a, b, c = on_demand("a", "RPC0"), on_demand("b", "RPC0"), on_demand("c", "RPC1")
        await desire(bare_fleet, a, b, c)
        await ask("c")
        await ask("a")
        here = await lie_on(bare_fleet, "shared")
        assert [here["RPC0"].keys(), here["RPC1"].keys()] == [{"a"}, {"c"}]
        assert here["RPC0"]["a"] >= first.used > 16 * MIB
        await ask("b")
        here = await lie_on(bare_fleet, "shared")
        assert [here["RPC0"].keys(), here["RPC1"].keys()] == [{"b"}, {"c"}], "`c` was used first"
        assert here["CPU"].keys() == {"b", "c"}

        await desire(bare_fleet, a, b | {"preload": True}, c)
        await ask("a")
        here = await lie_on(bare_fleet, "shared")
        assert here["RPC0"].keys() == {"a", "b"} and here["CPU"].keys() == {"a", "b", "c"}
        assert 0 < here["RPC0"]["a"] <= first.memory - here["RPC0"]["b"], "that of `b` is its own"
        await desire(bare_fleet)


async def test_a_model_that_drains_for_a_client_who_has_gone_serves_again(
    bare_fleet: Fleet,
) -> None:
    """Its stream goes on all the while, in the engine process that it began in."""
    fleet = bare_fleet
    with RpcDevice(72 * MIB) as device:
        agent = await fleet.start_agent(
            name="taken",
            model=None,
            slots=None,
            context_size=None,
            rpc=device.address,
            fit_target="1MiB",
            host_cache="0",
            env={STEPS: "30"},
        )
        other = on_demand("b", "RPC0") | {"context_size": 2048}  # or it would only change its name
        await desire(fleet, on_demand("a", "RPC0") | {"slots": 2}, other)

        async def ready() -> set[str]:
            models = (await view(fleet, "taken"))["models"]
            return {each["name"] for each in models if each["state"] == "ready"}

        async def is_draining() -> bool:
            return not await ready()

        async def is_back() -> bool:
            return await ready() == {"a"}

        body = ENDLESS | {"n_discard": 64}
        stream = asyncio.create_task(generate(fleet.http, fleet.inference, body | {"model": "a"}))
        await fleet.until_num_requests(1, "streaming")
        case = plain_cases()[0].body
        gone = asyncio.create_task(generate(fleet.http, fleet.inference, case | {"model": "b"}))
        await until(is_draining)
        gone.cancel()
        await until(is_back)
        beside = await generate(fleet.http, fleet.inference, case | {"model": "a"})
        assert beside.text == plain_cases()[0].answer, beside.end
        assert not stream.done()
        assert len(agent.engine_pids) == 1
        stream.cancel()
        await fleet.until_idle()
        await desire(fleet)
