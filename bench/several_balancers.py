"""Kills balancers, the one that leads, and PostgreSQL under load: what their own balancer survived.

Three balancers over one PostgreSQL; simulated agents, and real ones that obey the balancer that
leads. Clients send requests to each balancer all the time. A request counts as wrong if the
balancer that it went to lived and it did not end with all of its tokens. Each kill strikes while
all run a batch, begun at the one that is killed; it has to answer each of its lines exactly once.

    python -m bench.several_balancers
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from bench import shared_batches
from bench.answers import generate
from bench.figures import RequestsFailed
from bench.harness import Flags, at_least
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from tests.balancer.store.postgres import PostgresServer

NAMES = ("one", "two", "three")
NUM_REAL = 2
TOKENS = 40
ANSWERED_WITHIN = 120.0
CLIENTS = 3
"""At each balancer."""

CALM = 4.0
"""Seconds of load before the first kill, and after each."""

DESIRED = {"name": "demo", "source": MODEL.absolute().as_uri(), "slots": 2, "context_size": 1024}


@dataclass
class Tally:
    """What one balancer's clients saw. `lives` counts its starts."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    is_dead: bool = False
    lives: int = 1


@dataclass
class Scene:
    """Daemons, and how to start them anew at the same addresses."""

    fleets: dict[str, Fleet]
    state: str
    files: str
    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in NAMES})
    simulated: dict[str, Daemon] = field(default_factory=dict)
    num_agents: int = 12
    num_lines: int = 600
    batches: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return self.fleets[name].management.replace("http", "ws", 1)

    async def simulate(self, name: str) -> None:
        """The simulated agents' links to one balancer."""
        self.simulated[name] = await self.fleets[name].start(
            sys.executable, "-m", "bench.balancer.agents",
            *("--url", self.url(name), "--agents", str(self.num_agents), "--slots", "4"),
        )  # fmt: skip
        await self.simulated[name].until_line(self.simulated[name].stdout, "ready")

    async def revive(self, name: str) -> None:
        """Start a balancer again where it was."""
        fleet, tally = self.fleets[name], self.tallies[name]
        at = fleet.balancer.ready
        await fleet.start_balancer(
            state=self.state,
            files=self.files,
            balancer_name=name,
            inference_addr=at["inference"],
            management_addr=at["management"],
            log_format="json",
        )
        await self.simulate(name)
        tally.is_dead, tally.lives = False, tally.lives + 1

    async def begin_batch(self, name: str) -> None:
        """One that runs, begun at this balancer."""
        fleet = self.fleets[name]
        self.batches.append(await shared_batches.begin(fleet, self.num_lines, "demo"))

    async def kill(self, name: str) -> None:
        self.tallies[name].is_dead = True
        self.tallies[name].lives += 1
        self.fleets[name].balancer.signal(signal.SIGKILL)
        await self.fleets[name].balancer.exit_code()

    def leader(self) -> str:
        """The balancer that reported last that it leads."""
        lines = [
            (line, name)
            for name, fleet in self.fleets.items()
            if not self.tallies[name].is_dead
            for line in fleet.balancer.stderr
            if "this balancer leads" in line
        ]
        epochs = {
            int(json.loads(line)["epoch"]): name for line, name in lines if "no more" not in line
        }
        return epochs[max(epochs)]


async def ask(fleet: Fleet, model: str) -> str:
    """How one request ended: `ok`, or what was wrong."""
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True}
    try:
        async with asyncio.timeout(ANSWERED_WITHIN):
            answer = await generate(fleet, body)
    except RequestsFailed as error:
        return str(error)[:200]
    usage = answer.usage["completion_tokens"]
    return "ok" if usage == TOKENS else f"{usage} tokens"


async def client(scene: Scene, name: str, model: str, is_over: Callable[[], bool]) -> None:
    fleet, tally = scene.fleets[name], scene.tallies[name]
    while not is_over():
        if tally.is_dead:
            await asyncio.sleep(0.2)
            continue
        lives = tally.lives
        try:
            outcome = await ask(fleet, model)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            outcome = f"connection: {type(error).__name__}"
        if outcome != "ok" and (tally.is_dead or tally.lives != lives):
            outcome = "its balancer was killed"
        elif outcome != "ok":
            tally.wrong.append(f"{model}: {outcome}")
            outcome = "wrong"
        tally.outcomes[f"{model} {outcome}"] += 1


@asynccontextmanager
async def opened(given: argparse.Namespace, server: PostgresServer) -> AsyncIterator[Scene]:
    state = server.database()
    async with AsyncExitStack() as stack:
        files = stack.enter_context(tempfile.TemporaryDirectory())
        scene = Scene({name: Fleet(stack) for name in NAMES}, state, files)
        scene.num_agents, scene.num_lines = given.agents, given.lines
        for name, fleet in scene.fleets.items():
            await fleet.open_client()
            await fleet.start_balancer(
                state=state, files=files, balancer_name=name, log_format="json"
            )
            await scene.simulate(name)
        urls = [scene.url(name) for name in NAMES]
        for number in range(NUM_REAL):
            await scene.fleets["one"].start_agent(
                balancer=urls, name=f"real-{number}", model=None, slots=None, context_size=None
            )
        await change_slots(scene, "two", slots=2)
        yield scene


async def change_slots(scene: Scene, name: str, *, slots: int) -> float:
    """Change the desired state at a balancer; seconds until both real agents have so many slots."""
    fleet, begun = scene.fleets[name], time.monotonic()

    async def is_saved() -> bool:
        put = fleet.http.put(
            f"{fleet.management}/api/v1/desired-state",
            json={"models": [DESIRED | {"slots": slots}]},
        )
        async with put as response:
            return response.status == 200

    async def is_done() -> bool:
        agents = [a for a in await fleet.view("agents") if a["name"].startswith("real")]
        return [a["slots"]["total"] for a in agents if a["state"] == "ready"] == [slots] * NUM_REAL

    await until(is_saved, deadline=30.0)
    await until(is_done, deadline=60.0)
    return time.monotonic() - begun


async def strike(scene: Scene, server: PostgresServer) -> None:
    """Each fault, with a change of the desired state after it: one balancer leads."""
    leader = scene.leader()
    follower = next(name for name in NAMES if name != leader)
    for what, name in (("a balancer that follows", follower), ("the one that leads", leader)):
        await scene.begin_batch(name)
        await scene.kill(name)
        await asyncio.sleep(CALM)
        other = next(each for each in NAMES if each != name)
        took = await change_slots(scene, other, slots=1)
        print(f"killed {what} ({name}): a change is carried out after {took:.1f} s", flush=True)
        await scene.revive(name)
        await change_slots(scene, name, slots=2)
    await scene.begin_batch("one")
    server.stop(signal.SIGKILL)
    await asyncio.sleep(CALM)
    server.start()
    took = await change_slots(scene, "one", slots=1)
    print(f"killed PostgreSQL: a change is carried out {took:.1f} s after it is back", flush=True)
    await change_slots(scene, "one", slots=2)


async def end_batches(scene: Scene) -> int:
    """Wait for them, asking one balancer; how many lines are wrong."""
    num_wrong = 0
    for id in scene.batches:
        try:
            wrong = await shared_batches.wrong_lines(scene.fleets["three"], id, scene.num_lines)
        except AssertionError:
            for name, fleet in scene.fleets.items():
                lines = [line for line in fleet.balancer.stderr if id in line]
                print(f"{name}:", *lines[-8:], sep="\n", flush=True)
            raise
        for each in wrong[:5]:
            print(f"  wrong in {id}: {each}")
        num_wrong += len(wrong)
    num = len(scene.batches) * scene.num_lines
    print(f"batches: {len(scene.batches)}, {num} lines; wrong: {num_wrong}", flush=True)
    return num_wrong


async def run(given: argparse.Namespace) -> int:
    server = PostgresServer()
    server.start()
    try:
        async with opened(given, server) as scene:
            is_over = False
            async with asyncio.TaskGroup() as group:
                for name in NAMES:
                    for number in range(CLIENTS):
                        model = "demo" if number % 6 == 0 else "simulated"
                        group.create_task(client(scene, name, model, lambda: is_over))
                await asyncio.sleep(CALM)
                try:
                    for _ in range(given.rounds):
                        await strike(scene, server)
                except AssertionError:
                    for fleet in scene.fleets.values():
                        print("\n".join(fleet.balancer.stderr[-5:]))
                    raise
                is_over = True
            return min(report(scene) + await end_batches(scene), 1)
    finally:
        server.remove()


def report(scene: Scene) -> int:
    wrong = 0
    for name, tally in scene.tallies.items():
        print(f"{name}: {dict(tally.outcomes)}")
        for each in tally.wrong[:5]:
            print(f"  wrong: {each}")
        wrong += len(tally.wrong)
    print(f"wrong in all: {wrong}")
    return min(wrong, 1)


def main() -> None:
    flags = Flags("several_balancers", __doc__)
    flags.rounds(1)
    flags.add_argument("--agents", type=at_least(1), default=12, help="that are simulated (12)")
    flags.add_argument("--lines", type=at_least(1), default=600, help="of each batch (600)")
    raise SystemExit(asyncio.run(run(flags.parse_args())))


if __name__ == "__main__":
    main()
