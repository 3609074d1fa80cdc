"""A rolling upgrade under load, from a former checkout to this one: what is lost?

    python -m bench.rolling_upgrade FOLDER [--first agents|balancers]

FOLDER is another work tree of the project with an environment of its own. It starts as a balancer
over PostgreSQL and two agents, which take orders. Agents are replaced one after the other by this
checkout's; a balancer of this checkout starts beside the former over the same store, then the
former goes. At each stage a change of the desired state at every balancer is carried out, while
clients ask for texts that are known. Those that a leaving balancer turns away ask the other.
"""

import argparse
import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from integration_tests.corpus import Case, generate, plain_cases
from integration_tests.daemons import BIN, MODEL, Daemon, Fleet, until
from tests.balancer.store.postgres import PostgresServer

CLIENTS = 4
CALM = 3.0
"""Seconds of load at each stage."""

DESIRED = {"name": "demo", "source": MODEL.absolute().as_uri(), "context_size": 1024}
NUM_LONG = 400
LONG = {"prompt": "Once upon a time", "max_tokens": NUM_LONG, "ignore_eos": True}
"""Its text is not known, only its length."""

FORMER, PRESENT = "former", "present"


@dataclass
class Scene:
    """Balancers by their age, agents by their name. `stage` is what is being done."""

    stack: AsyncExitStack
    programs: dict[str, Path]
    state: str
    ports: dict[str, int]
    stage: str = "start"
    balancers: dict[str, Fleet] = field(default_factory=dict)
    agents: dict[str, Daemon] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    num_wishes: int = 0

    async def start_balancer(self, age: str) -> None:
        fleet = Fleet(self.stack, self.programs[age])
        await fleet.open_client()
        at = f"127.0.0.1:{self.ports[age]}"
        await fleet.start_balancer(
            state=self.state, balancer_name=age, management_addr=at, log_format="json"
        )
        self.balancers[age] = fleet

    async def start_agent(self, name: str, age: str) -> None:
        fleet = Fleet(self.stack, self.programs[age])
        fleet.balancer = next(iter(self.balancers.values())).balancer
        urls = [f"ws://127.0.0.1:{port}" for port in self.ports.values()]
        self.agents[name] = await fleet.start_agent(
            balancer=urls, name=name, model=None, slots=None, context_size=None
        )

    async def remove_balancer(self, age: str) -> None:
        self.leaving.add(age)
        code = await self.balancers.pop(age).balancer.terminate()
        assert code == 0, f"the {age} balancer ended with {code}"

    async def replace_agent(self, name: str) -> None:
        code = await self.agents[name].terminate()
        assert code == 0, f"{name} ended with {code}"
        await self.start_agent(name, PRESENT)


def fixed_ports() -> dict[str, int]:
    """Two that are free now."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return {FORMER: one.getsockname()[1], PRESENT: two.getsockname()[1]}


async def change_slots(scene: Scene, age: str) -> None:
    """Change the number of slots at one balancer; all show it."""
    slots = 2 + scene.num_wishes % 3
    scene.num_wishes += 1
    fleet = scene.balancers[age]
    put = {"models": [DESIRED | {"slots": slots}]}

    async def is_saved() -> bool:
        async with fleet.http.put(f"{fleet.management}/api/v1/desired-state", json=put) as response:
            return response.status == 200

    await until(is_saved, deadline=20.0)
    for other in scene.balancers.values():

        async def is_done(seen_by: Fleet = other) -> bool:
            agents = await seen_by.view("agents")
            ready = [each["slots"]["total"] for each in agents if each["state"] == "ready"]
            return ready == [slots] * len(scene.agents)

        await until(is_done, deadline=60.0)


async def stage(scene: Scene, name: str) -> None:
    """A change of the desired state at each balancer, and a while of load."""
    for age in tuple(scene.balancers):
        await change_slots(scene, age)
    before = scene.outcomes.total()
    await asyncio.sleep(CALM)
    print(f"{name}: {scene.outcomes.total() - before} requests, {len(scene.wrong)} wrong so far")
    sys.stdout.flush()


async def ask(scene: Scene, age: str, case: Case) -> str:
    """`ok`, or what was wrong."""
    fleet = scene.balancers[age]
    answer = await generate(fleet.http, fleet.inference, case.body)
    last: dict[str, Any] = answer.events[-1] if answer.events else {}
    if last.get("event") == "done":
        is_long = last["usage"]["completion_tokens"] == NUM_LONG
        is_right = is_long if case.body is LONG else answer.text == case.answer
        return "ok" if is_right else f"another text: {answer.text[:80]!r}"
    return str(last.get("error", {}).get("code", last))[:200]


async def client(scene: Scene, cases: tuple[Case, ...], number: int) -> None:
    """Asks until cancelled, at each balancer in turn."""
    for turn in count(number):
        ages = tuple(scene.balancers)
        age, case, begun = ages[turn % len(ages)], cases[turn % len(cases)], scene.stage
        try:
            outcome = await ask(scene, age, case)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
            outcome = "no connection"
        if age in scene.leaving and outcome in ("no connection", "shutting_down"):
            outcome = "turned away by a balancer that goes"
        elif outcome != "ok":
            scene.wrong.append(f"{begun} to {scene.stage}, at the {age} balancer: {outcome}")
            outcome = "wrong"
        scene.outcomes[outcome] += 1


async def background(scene: Scene) -> str:
    """Begin a long response at the former balancer; its id."""
    fleet = scene.balancers[FORMER]
    body = {"model": "demo", "input": "Tell me more", "background": True}
    async with fleet.http.post(f"{fleet.inference}/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["id"])


async def is_completed(scene: Scene, id: str) -> bool:
    fleet = scene.balancers[PRESENT]
    async with fleet.http.get(f"{fleet.inference}/v1/responses/{id}") as response:
        answer = await response.json()
    assert answer.get("status") in ("queued", "in_progress", "completed"), answer
    return bool(answer["status"] == "completed")


async def upgrade_agents(scene: Scene) -> None:
    for name in tuple(scene.agents):
        scene.stage = f"{name} is replaced"
        await scene.replace_agent(name)
        await stage(scene, scene.stage)


async def upgrade_balancer(scene: Scene) -> None:
    scene.stage = "a present balancer beside the former"
    await scene.start_balancer(PRESENT)
    await stage(scene, scene.stage)
    scene.stage = "the former balancer goes"
    ids = [await background(scene) for _ in range(4)]
    await scene.remove_balancer(FORMER)
    for id in ids:
        await until(lambda id=id: is_completed(scene, id), deadline=30.0)  # type: ignore[misc]
    await stage(scene, scene.stage)


@asynccontextmanager
async def opened(former: Path, server: PostgresServer) -> AsyncIterator[Scene]:
    """The former version, serving."""
    programs = {FORMER: former / ".venv" / "bin", PRESENT: BIN}
    async with AsyncExitStack() as stack:
        scene = Scene(stack, programs, server.database(), fixed_ports())
        await scene.start_balancer(FORMER)
        for name in ("agent-1", "agent-2"):
            await scene.start_agent(name, FORMER)
        await change_slots(scene, FORMER)
        yield scene


async def run(former: Path, first: str) -> int:
    server = PostgresServer()
    server.start()
    steps = [upgrade_agents, upgrade_balancer]
    try:
        async with opened(former, server) as scene:
            cases = (*plain_cases()[:8], Case("long", LONG, "", "", ()))
            clients = [
                asyncio.create_task(client(scene, cases, number)) for number in range(CLIENTS)
            ]
            await stage(scene, "all former")
            for step in steps if first == "agents" else reversed(steps):
                await step(scene)
            for each in clients:
                each.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            return report(scene)
    finally:
        server.remove()


def report(scene: Scene) -> int:
    print(dict(scene.outcomes))
    for each in scene.wrong[:20]:
        print(f"  wrong: {each}")
    refused = [
        line
        for fleet in scene.balancers.values()
        for line in fleet.balancer.stderr
        if "invalid message" in line or "Traceback" in line
    ]
    for line in refused[:5]:
        print(f"  log: {line}")
    print(f"wrong in all: {len(scene.wrong)}")
    return min(len(scene.wrong) + len(refused), 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("former", type=Path, metavar="FOLDER")
    parser.add_argument("--first", choices=["agents", "balancers"], default="agents")
    given = parser.parse_args()
    sys.exit(asyncio.run(run(given.former, given.first)))
