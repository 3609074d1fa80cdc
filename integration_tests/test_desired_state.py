"""The desired state over real daemons: a model comes, and changes under traffic."""

import asyncio
import socket
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import MODEL, Fleet, until

SOURCE = MODEL.absolute().as_uri()


def wish(*models: dict[str, Any]) -> dict[str, Any]:
    return {"models": list(models)}


async def put(fleet: Fleet, state: dict[str, Any], **params: str) -> Any:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json=state, params=params) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def until_served(fleet: Fleet, num_agents: int, *, slots: int) -> None:
    async def served() -> bool:
        agents = await fleet.view("agents")
        ready = [a for a in agents if a["state"] == "ready" and a["slots"]["total"] == slots]
        return len(ready) == num_agents

    await until(served)


async def test_a_model_comes_and_rolls_and_no_request_fails(fleet: Fleet) -> None:
    await fleet.start_balancer()
    for _ in range(3):
        await fleet.start_agent(model=None, slots=None, context_size=None)
    model = {
        "name": "demo",
        "aliases": ["gpt-4o-mini"],
        "source": SOURCE,
        "slots": 2,
        "context_size": 1024,
    }
    body = plain_cases()[0].body | {"model": "gpt-4o-mini"}
    plan = await put(fleet, wish(model), dry_run="true")
    assert [step["action"] for step in plan["agents"]] == ["load"] * 3
    waiting = asyncio.create_task(generate(fleet.http, fleet.inference, body))
    await put(fleet, wish(model))
    assert (await waiting).text == plain_cases()[0].answer
    await until_served(fleet, 3, slots=2)

    is_over = False

    async def traffic() -> int:
        count = 0
        while not is_over:
            answer = await generate(fleet.http, fleet.inference, body)
            assert answer.text == plain_cases()[0].answer, answer.end
            count += 1
        return count

    clients = [asyncio.create_task(traffic()) for _ in range(4)]
    await put(fleet, wish(model | {"slots": 3, "context_size": 2048}))
    await until_served(fleet, 3, slots=3)
    is_over = True
    assert min(await asyncio.gather(*clients)) > 0

    await put(fleet, {"models": []})

    async def all_are_idle() -> bool:
        return {agent["state"] for agent in await fleet.view("agents")} == {"idle"}

    await until(all_are_idle)


async def test_the_engines_settings_come_from_the_desired_state(fleet: Fleet) -> None:
    """Those that it gives; the others are the agent's own. The agent's view has both."""
    await fleet.start_balancer()
    nothing: dict[str, Any] = {"model": None, "slots": None, "context_size": None}
    await fleet.start_agent(**nothing, flash_attn="on", rope_scale=1.0)
    model = {"name": "demo", "source": SOURCE, "slots": 2, "context_size": 512}
    wrong = {"flash_attn": "off", "cache_type_v": "q8_0", "split_mode": "tensor"}
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json=wish(model | {"engine": wrong})) as response:
        message = (await response.json())["error"]["message"]
        assert response.status == 400
    assert "`models[0].engine.cache_type_v` must be f32, f16 or bf16" in message
    assert "`models[0].engine.split_mode` must be 'none', 'layer' or 'row'" in message

    engine = {
        "cache_type_k": "q8_0",
        "cache_type_v": "q8_0",
        "gpu_layers": "auto",
        "tensor_split": "2,1",
        "n_cpu_moe": 1,
        "ubatch_size": 256,
        "threads_batch": 1,
        "load_mode": "none",
        "override_kv": "general.name=str:other",
    }
    await put(fleet, wish(model | {"engine": engine}))
    await until_served(fleet, 1, slots=2)
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text, answer.end
    [agent] = await fleet.view("agents")
    shown = agent["model"]["engine"]
    assert shown | engine | {"gpu_layers": 0} == shown, "auto is none where there is no GPU"
    assert (shown["flash_attn"], shown["rope_scale"], shown["batch_size"]) == ("on", 1.0, None)

    async def is_measured() -> bool:
        [agent] = await fleet.view("agents")
        [host] = agent["devices"]
        return host["name"] == "CPU" and bool(host["memory"]["free"])

    await until(is_measured)

    await put(fleet, wish(model | {"engine": engine | {"device": "CUDA9"}}))

    async def is_refused() -> bool:
        [agent] = await fleet.view("agents")
        return any("--device: there is no CUDA9" in each["message"] for each in agent["issues"])

    await until(is_refused)


async def test_two_models_take_turns_on_one_agent(fleet: Fleet) -> None:
    """Each is loaded when a request waits for it, in place of the one that is idle."""
    await fleet.start_balancer()
    agent = await fleet.start_agent(model=None, slots=None, context_size=None, models_max=1)
    on_demand = {"source": SOURCE, "slots": 2, "preload": False}
    first = on_demand | {"name": "first", "context_size": 512}
    second = on_demand | {"name": "second", "context_size": 1024}
    await put(fleet, wish(first, second))
    case = plain_cases()[0]
    for name in ("first", "second"):
        answer = await generate(fleet.http, fleet.inference, case.body | {"model": name})
        assert answer.text == case.answer, answer.end
        assert await statuses(fleet) == {"first": "unloaded", "second": "unloaded"} | {
            name: "loaded"
        }
    assert len(agent.engine_pids) == 2

    soon = {"idle_timeout": "500ms"}
    await put(fleet, wish(first | soon, second | soon))

    async def are_unloaded() -> bool:
        return set((await statuses(fleet)).values()) == {"unloaded"}

    await until(are_unloaded)


async def statuses(fleet: Fleet) -> dict[str, str]:
    return {model["name"]: model["status"] for model in await fleet.view("models")}


async def test_a_drained_host_stays_drained_over_restarts_of_all(
    fleet: Fleet, tmp_path: Path
) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    balancer = await fleet.start_balancer(state=state)
    nothing: dict[str, Any] = {"model": None, "slots": None, "context_size": None}
    agent = await fleet.start_agent(name="mule", **nothing)
    [first] = await fleet.view("agents")
    await fleet.steer(first["id"], "drain")
    assert await agent.terminate() == 0
    assert await balancer.terminate() == 0
    await fleet.start_balancer(state=state)
    await fleet.start_agent(name="mule", **nothing)
    [again] = await fleet.view("agents")
    assert again["id"] != first["id"]
    assert again["state"] == "drained"
    async with fleet.http.post(
        f"{fleet.management}/api/v1/agents/{again['id']}/resume", json={}
    ) as response:
        assert (await response.json())["state"] == "idle"


async def test_after_a_restart_the_hosts_that_are_allowed_now_hold(
    fleet: Fleet, tmp_path: Path
) -> None:
    """No file comes without TLS from one that was allowed before. This one has none at first."""

    async def fails(*, is_denied: bool) -> None:
        async def shown() -> bool:
            codes = [
                each["code"] for agent in await fleet.view("agents") for each in agent["issues"]
            ]
            return bool(codes) and (codes == ["denied"]) == is_denied

        await until(shown)

    state = f"sqlite:///{tmp_path}/state.db"
    name = socket.gethostname()  # an address of loopback is always allowed
    async with TestServer(web.Application(), host="0.0.0.0") as files:
        balancer = await fleet.start_balancer(state=state, model_source_http=name)
        await put(fleet, wish({"name": "demo", "source": f"http://{name}:{files.port}/demo.gguf"}))
        await fleet.start_agent(model=None, slots=None, context_size=None)
        await fails(is_denied=False)
        assert await balancer.terminate() == 0
        await fleet.restart_balancer(
            state=state,
        )
        await fails(is_denied=True)
