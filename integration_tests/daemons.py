"""Real daemons as processes on loopback, started, waited for and ended by tests.

Waiting is for conditions: the ready line of a daemon, a state of the fleet as the management port
shows it, the end of a process. Every wait has a deadline that fails the test with what was seen.
"""

import asyncio
import json
import os
import random
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

import aiohttp

from integration_tests.computing import seconds_of
from integration_tests.forked import MODULES, ForkedProcess
from integration_tests.pace import Pace

MODEL = Path(__file__).parent.parent / "demo" / "arriero-demo.gguf"
BIN = Path(sys.executable).parent
DEADLINE = 60.0
"""Seconds after which what a test waits for counts as something that never comes.

Many times what it takes on a slow and busy machine: a deadline ends a test that hangs, and judges
nothing else.
"""

SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 0.1
"""Seconds between two looks of `until`."""

LONGEST_LINE = 2**22
"""Bytes of a line of a daemon's output."""


class Daemon:
    """One process: its ready line as a dict, its standard error as lines."""

    def __init__(
        self, command: tuple[str, ...], process: asyncio.subprocess.Process | ForkedProcess
    ) -> None:
        self.command = command
        self.process = process
        self.pace: Pace
        """How fast an agent's engine computes; other daemons have none."""
        self.ready: dict[str, str] = {}
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._readers = [
            asyncio.create_task(self._collect(reader, lines))
            for reader, lines in ((process.stdout, self.stdout), (process.stderr, self.stderr))
            if reader is not None
        ]
        self._news = asyncio.Condition()

    @classmethod
    async def start(
        cls,
        *command: str,
        env: dict[str, str] | None = None,
        stderr: int = asyncio.subprocess.PIPE,
        forks: bool = True,
    ) -> Self:
        """`stderr`: a file of the test's own, of which no lines are collected.

        `forks`: a balancer and an agent come from a process that has imported what they need.
        """
        program, *arguments = command
        environ = os.environ | (env or {})
        path = BIN / program
        if forks and path.parent == BIN and path.name in MODULES:
            forked = await ForkedProcess.start(
                path.name, arguments, environ, stderr=stderr, limit=LONGEST_LINE
            )
            return cls(command, forked)
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environ,
            limit=LONGEST_LINE,
        )
        return cls(command, process)

    async def _collect(self, reader: asyncio.StreamReader, lines: list[str]) -> None:
        async for line in reader:
            lines.append(line.decode().rstrip("\n"))
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def until_ready(self) -> dict[str, str]:
        """Waits for the ready line; returns its `key=value` words."""
        line = await self.until_line(self.stdout, "ready ")
        self.ready = dict(word.split("=", 1) for word in line.split() if "=" in word)
        return self.ready

    async def until_line(self, lines: list[str], part: str) -> str:
        """Waits for a line of `lines` (`stdout` or `stderr`) that holds `part`."""

        def found() -> str | None:
            return next((line for line in lines if part in line), None)

        async def wait() -> None:
            async with self._news:
                await self._news.wait_for(
                    lambda: found() or all(task.done() for task in self._readers)
                )

        try:
            await asyncio.wait_for(wait(), DEADLINE)
        except TimeoutError:
            raise AssertionError(f"{self} never said {part!r}") from None
        if (line := found()) is None:
            raise AssertionError(f"{self} ended without saying {part!r}")
        return line

    @property
    def engine_pids(self) -> list[int]:
        """The engine processes that an agent says it started, the present one last."""
        started = [line for line in self.stderr if "the engine process starts" in line]
        return [json.loads(line)["pid"] for line in started]

    @property
    def computing_seconds(self) -> float:
        """The computing time so far of the process that was started."""
        return seconds_of(Path(f"/proc/{self.process.pid}"))

    @property
    def pids(self) -> list[int]:
        """The processes that the daemon consists of."""
        return [self.process.pid, *self.engine_pids[-1:]]

    def signal_engine(self, number: signal.Signals) -> None:
        """Signals the process that holds an agent's engine."""
        os.kill(self.engine_pids[-1], number)

    def signal_all(self, number: signal.Signals) -> None:
        """Signals every process of the daemon, as whatever befalls the whole host does."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal(self, number: signal.Signals) -> None:
        """Signals the process that was started."""
        self.process.send_signal(number)

    async def exit_code(self, deadline: float = DEADLINE) -> int:
        """Waits for the process to end by itself."""
        try:
            code = await asyncio.wait_for(self.process.wait(), deadline)
        except TimeoutError:
            raise AssertionError(f"{self} did not end within {deadline} s") from None
        await asyncio.gather(*self._readers)
        return code

    async def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.returncode is None:
            self.signal(signal.SIGTERM)
        return await self.exit_code()

    async def close(self) -> None:
        """Ends the process whatever its state, and its readers with it."""
        if self.process.returncode is None:
            self.signal_all(signal.SIGKILL)
        await self.process.wait()
        await asyncio.gather(*self._readers)

    def __repr__(self) -> str:
        return "\n".join([" ".join(self.command), *self.stdout, *self.stderr[-40:]])


class Fleet:
    """One balancer and any number of agents, with a client session to talk to them."""

    def __init__(self, stack: AsyncExitStack, programs: Path = BIN, *, forks: bool = True) -> None:
        """`programs`: the folder that the daemons' programs are in. `forks`: as in `Daemon`."""
        self._stack = stack
        self._programs = programs
        self.forks = forks
        self.agents: list[Daemon] = []
        self.daemons: list[Daemon] = []
        """All that were started here, of whatever kind."""
        self._numbers = count(1)
        self.balancer: Daemon
        self.http: aiohttp.ClientSession

    def guest(self, stack: AsyncExitStack) -> "Fleet":
        """The same balancer and client, with agents of its own, which `stack` ends."""
        fleet = Fleet(stack, self._programs, forks=self.forks)
        fleet.balancer, fleet.http = self.balancer, self.http
        return fleet

    async def open_client(
        self, tls: ssl.SSLContext | Literal[True] = True, deadline: float = 300
    ) -> None:
        """`deadline`: seconds for a whole answer."""
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        timeout = aiohttp.ClientTimeout(total=deadline)
        self.http = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout)
        )

    @property
    def inference(self) -> str:
        return f"{self._scheme}://{self.balancer.ready['inference']}"

    @property
    def management(self) -> str:
        return f"{self._scheme}://{self.balancer.ready['management']}"

    @property
    def _scheme(self) -> str:
        return self.balancer.ready.get("scheme", "http")

    async def start(
        self,
        *command: str,
        env: dict[str, str] | None = None,
        stderr: int = asyncio.subprocess.PIPE,
    ) -> Daemon:
        """Starts any command; it is ended with the fleet."""
        forks = self.forks and not any(name.startswith("PYTHON") for name in env or ())
        daemon = await Daemon.start(*command, env=env, stderr=stderr, forks=forks)
        self._stack.push_async_callback(daemon.close)
        self.daemons.append(daemon)
        return daemon

    async def start_balancer(
        self,
        *,
        stderr: int = asyncio.subprocess.PIPE,
        env: dict[str, str] | None = None,
        **settings: object,
    ) -> Daemon:
        program = str(self._programs / "balancer")
        self.balancer = await self.start(
            program, *_flags(_own_addresses() | _BALANCER | settings), env=env, stderr=stderr
        )
        await self.balancer.until_ready()
        return self.balancer

    async def restart_balancer(self, **settings: object) -> Daemon:
        """Start the balancer again where it was; it has ended."""
        former = self.balancer.ready
        return await self.start_balancer(
            inference_addr=former["inference"], management_addr=former["management"], **settings
        )

    async def start_agent(self, *, env: dict[str, str] | None = None, **settings: object) -> Daemon:
        agent = await self.launch_agent(env=env, **settings)
        await agent.until_ready()
        return agent

    async def launch_agent(
        self,
        *,
        prefix: tuple[str, ...] = (),
        stderr: int = asyncio.subprocess.PIPE,
        env: dict[str, str] | None = None,
        is_kept_out: bool = False,
        **settings: object,
    ) -> Daemon:
        """Starts an agent without waiting until it is ready.

        `prefix`: a command that becomes the agent, such as `nice`. `is_kept_out`: as by
        `Pace.keep_out`, from the first engine on.
        """
        defaults = {
            "balancer": self.management.replace("http", "ws", 1),
            "name": f"agent-{next(self._numbers)}",
            "model": MODEL,
            "slots": 4,
            "context_size": 1024,
            "threads": 1,
        }
        command = (*prefix, str(self._programs / "agent"), *_flags(defaults | settings))
        pace = await Pace.open()
        if is_kept_out:
            pace.keep_out()
        self._stack.push_async_callback(pace.close)
        agent = await self.start(*command, env=pace.environment | (env or {}), stderr=stderr)
        agent.pace = pace
        self.agents.append(agent)
        return agent

    async def view(self, what: str) -> Any:
        """GET of the management API: `agents` or `requests`."""
        async with self.http.get(f"{self.management}/api/v1/{what}") as response:
            assert response.status == 200
            return (await response.json())[what]

    async def steer(self, agent: str, what: str, **body: str) -> None:
        """An operator's word to the agent of this id: `drain` or `resume`."""
        url = f"{self.management}/api/v1/agents/{agent}/{what}"
        async with self.http.post(url, json=body) as response:
            assert response.status == 200, await response.text()

    async def busy_slots(self) -> int:
        return sum(agent["slots"]["busy"] for agent in await self.view("agents"))

    async def until_idle(self, deadline: float = DEADLINE) -> None:
        """Waits until no request is known and no slot is busy."""

        async def idle() -> bool:
            return not await self.view("requests") and not await self.busy_slots()

        await until(idle, deadline=deadline)

    async def until_num_requests(self, num: int, state: str, deadline: float = DEADLINE) -> None:
        """Waits until exactly `num` requests are in `state`."""

        async def reached() -> bool:
            requests = await self.view("requests")
            return sum(request["state"] == state for request in requests) == num

        await until(reached, deadline=deadline)

    async def hold(self) -> None:
        """The engines of all agents here compute nothing until they are told to."""
        for agent in self.agents:
            await agent.pace.hold()

    async def let_go(self) -> None:
        """They compute as fast as it goes."""
        for agent in self.agents:
            await agent.pace.let_go()

    async def until_streaming(self, num: int, *, deadline: float = DEADLINE) -> None:
        """Lets held engines compute, a token of each sequence at a time, until `num` stream.

        Then they are held again, so no answer is over that is longer than a few tokens.
        """

        async def reached() -> bool:
            requests = await self.view("requests")
            if sum(request["state"] == "streaming" for request in requests) == num:
                return True
            for agent in self.agents:
                await agent.pace.hand_out(1)
            return False

        await until(reached, deadline=deadline)
        await self.hold()

    async def until_in_engines(self, num: int) -> None:
        """Waits until the engines have `num` sequences; held ones have computed nothing of them.

        So each of them gets as many tokens as are handed out, but for what its prompt takes longer.
        """

        async def reached() -> bool:
            said = [agent["statistics"] for agent in await self.view("agents")]
            # One that has just come has not said any yet.
            counts = [each["sequences"] for each in said if each]
            return sum(each["running"] + each["waiting"] for each in counts) == num

        await until(reached)

    async def until_metrics(self, deadline: float = DEADLINE, **values: float) -> None:
        """Waits until these metrics of the balancer have these values."""
        lines = {f"{name} {value:.1f}" for name, value in values.items()}

        async def reached() -> bool:
            async with self.http.get(f"{self.management}/metrics") as response:
                return lines <= set((await response.text()).splitlines())

        await until(reached, deadline=deadline)


def own_port() -> int:
    """A port that stays ours when a balancer ends, until it starts again.

    It is none of those that systems give to clients: Linux begins at 32,768, macOS at 49,152.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def _own_addresses() -> dict[str, str]:
    return {f"{name}_addr": f"127.0.0.1:{own_port()}" for name in ("inference", "management")}


_BALANCER = {
    "buffered_request_timeout": "300s",
    "token_timeout": "300s",
    "heartbeat_timeout": "60s",
}
"""Nothing is given up for being slow: a test whose subject a deadline is sets that."""


def _flags(settings: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in settings.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
        for word in (f"--{name.replace('_', '-')}", str(each))
    ]


@asynccontextmanager
async def started_fleet(**agent: object) -> AsyncIterator[Fleet]:
    """A balancer and an agent that has these settings, for as long as one is inside."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(**agent)
        yield fleet


async def until(condition: Callable[[], Awaitable[bool]], *, deadline: float = DEADLINE) -> None:
    """Asks `condition` again and again until it holds; fails the test after `deadline` seconds.

    The daemons under test are other processes, so the test can only ask. Each answer costs them
    and the test computing time, so what takes long is asked for less and less often.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    pause = SHORTEST_PAUSE
    while not await condition():
        if loop.time() > end:
            raise AssertionError(f"{condition.__qualname__} did not hold within {deadline} s")
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE)
