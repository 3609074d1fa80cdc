"""The daemons of a run: one balancer, some agents, each on its host, and started again there."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import aiohttp

from bench.chaos.clock import Clock
from bench.chaos.faults import HEARTBEAT_TIMEOUT
from bench.chaos.footprint import Footprint, unrest
from bench.chaos.wire.network import BALANCER, FIRST_AGENT, Network
from integration_tests.computing import num_workers
from integration_tests.daemons import BIN, MODEL, Daemon

SLOTS, CONTEXT_SIZE = 2, 4096
DRAIN = 8.0
READY_WITHIN = 60.0
LEAVES_WITHIN = DRAIN + 10.0
RESTS_WITHIN = 30.0
ASK_AGAIN = 0.05
BALANCER_SETTINGS = {
    "heartbeat-interval": "300ms",
    "heartbeat-timeout": f"{HEARTBEAT_TIMEOUT}s",
    # A cut of 2 s is repaired after up to 3.2 s: TCP sends again after 0.2, 0.4, 0.8 and 1.6 s.
    "write-timeout": "5s",
    "drain-timeout": f"{DRAIN}s",
    "log-format": "json",
}


Trouble = Callable[[], Awaitable[list[str]]]


class Unwell(Exception):
    """Daemons that did not come up, come to rest or leave in time; the message says which."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a run stands on: `folder` for files, `clock` of the daemons if it may jump."""

    network: Network
    folder: Path
    clock: Clock | None

    @property
    def disk(self) -> Path:
        """Where the state and saved prompts are."""
        return self.folder / "disk"

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the daemons are started with."""
        return self.clock.environment if self.clock else {}


@dataclass(slots=True)
class Hosts:
    """All daemons that run; those that are gone stay in the list for their logs."""

    ground: Ground
    num_agents: int
    http: aiohttp.ClientSession
    is_deterministic: bool = False
    agents: list[Daemon] = field(default_factory=list)
    past: list[Daemon] = field(default_factory=list)
    ports: tuple[int, int] = (0, 0)
    _numbers: "count[int]" = field(default_factory=count)
    _balancer: Daemon | None = None

    @property
    def balancer(self) -> Daemon:
        """The one that runs, or ran last."""
        assert self._balancer is not None
        return self._balancer

    @property
    def all(self) -> list[Daemon]:
        """Those that run."""
        return [self.balancer, *self.agents]

    @property
    def inference(self) -> str:
        """Where clients ask."""
        return f"http://{self.ground.network.balancer}:{self.ports[0]}"

    @property
    def management(self) -> str:
        """Where operators ask."""
        return f"http://{self.ground.network.balancer}:{self.ports[1]}"

    async def start(self) -> None:
        """Starts all of them."""
        await self.start_balancer()
        self.agents = list(
            await asyncio.gather(*(self._agent(number) for number in range(self.num_agents)))
        )

    async def start_balancer(self) -> None:
        """The first takes any ports; those after it take the same ones."""
        address = self.ground.network.balancer
        settings = BALANCER_SETTINGS | {
            "inference-addr": f"{address}:{self.ports[0]}",
            "management-addr": f"{address}:{self.ports[1]}",
            "state": f"sqlite:///{self.ground.disk}/state.db",
        }
        if self.ground.network.is_real:
            settings["insecure"] = "true"
        if self._balancer is not None:
            self.past.append(self._balancer)
        self._balancer = await self._daemon(BALANCER, "balancer", settings)
        ready = await self._balancer.until_ready()
        self.ports = (_port(ready["inference"]), _port(ready["management"]))

    async def start_agent(self, number: int) -> None:
        """Starts an agent again that is gone, and waits until it is ready."""
        self.past.append(self.agents[number])
        self.agents[number] = await self._agent(number)

    async def _agent(self, number: int) -> Daemon:
        settings = {
            "balancer": self.management.replace("http", "ws", 1),
            "name": f"agent-{number + 1}",
            "model": str(MODEL),
            "slots": str(SLOTS),
            "context-size": str(CONTEXT_SIZE),
            "threads": "1",
            "cache-dir": str(self.ground.disk / "prompts"),
            "drain-timeout": f"{DRAIN}s",
            "log-format": "json",
            "deterministic": str(self.is_deterministic).lower(),
        }
        agent = await self._daemon(FIRST_AGENT + number, "agent", settings)
        await agent.until_ready()
        return agent

    async def _daemon(self, host: int, program: str, settings: dict[str, str]) -> Daemon:
        flags = (word for name, value in settings.items() for word in (f"--{name}", value))
        command = [*self.ground.network.inside(host), str(BIN / program), *flags]
        return await Daemon.start(*command, env=self.ground.environment)

    async def metrics(self) -> str:
        """The balancer's page of metrics. Raises `aiohttp.ClientError`, `TimeoutError`."""
        async with self.http.get(f"{self.management}/metrics") as response:
            return await response.text()

    async def num_ready(self) -> int:
        """Agents that the balancer counts as ready."""
        page = await self.metrics()
        line = next(each for each in page.splitlines() if 'agents{state="ready"}' in each)
        return int(float(line.rpartition(" ")[2]))

    async def until_well(self) -> None:
        """Waits until all agents are ready for work. Raises `Unwell`."""

        async def trouble() -> list[str]:
            ready = await self.num_ready()
            return [] if ready == self.num_agents else [f"{ready} of {self.num_agents} are ready"]

        if found := await self._until_none(trouble, READY_WITHIN):
            raise Unwell(f"agents: {', '.join(found)}")

    async def unrest(self) -> list[str]:
        """What does not come to rest in time."""

        async def trouble() -> list[str]:
            return unrest(await self.metrics())

        return await self._until_none(trouble, RESTS_WITHIN)

    async def _until_none(self, trouble: Trouble, within: float) -> list[str]:
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        found = ["the balancer does not answer"]
        while found and loop.time() < end:
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                found = await trouble()
            await asyncio.sleep(ASK_AGAIN if found else 0)
        return found

    def footprints(self) -> dict[str, Footprint]:
        """The footprint of each process that runs, by its daemon's name and its number."""
        named = [("balancer", self.balancer)]
        named += [(f"agent-{number + 1}", agent) for number, agent in enumerate(self.agents)]
        return {
            f"{name} ({what}, pid {pid})": _footprint(pid, is_engine=what == "engine")
            for name, daemon in named
            for what, pid in zip(("first process", "engine"), daemon.pids, strict=False)
        }

    async def leave(self) -> list[str]:
        """SIGTERM to all; what was wrong with how they ended."""
        codes = await asyncio.gather(*(_ended(daemon) for daemon in self.all))
        ends = zip(self.all, codes, strict=True)
        return [f"{daemon.command} ended with {code}" for daemon, code in ends if code]

    async def close(self) -> None:
        """Ends whatever still runs."""
        for daemon in [*self.past, *([self._balancer] if self._balancer else []), *self.agents]:
            await daemon.close()


async def _ended(daemon: Daemon) -> int | str:
    daemon.signal(signal.SIGTERM)
    try:
        return await daemon.exit_code(LEAVES_WITHIN)
    except AssertionError as error:
        return str(error)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _footprint(pid: int, *, is_engine: bool) -> Footprint:
    folder = Path(f"/proc/{pid}")
    files: Counter[str] = Counter()
    for each in (folder / "fd").iterdir():
        with suppress(FileNotFoundError):
            files[_plain(str(each.readlink()))] += 1
    lines = (line.split() for line in (folder / "status").read_text().splitlines())
    status = {line[0].rstrip(":"): line[1] for line in lines if len(line) > 1}
    workers = num_workers(pid) if is_engine else 0
    files["socket"] -= workers
    return Footprint(files, int(status["Threads"]), int(status["RssAnon"]) * 1024, workers)


def _plain(target: str) -> str:
    """Without the number of a socket or a pipe."""
    kind, bracket, _ = target.partition(":[")
    return kind if bracket else target
