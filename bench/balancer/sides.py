"""The balancers that are compared, each started with its simulated hosts."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError

from bench.balancer.apis import KEY

_START_DEADLINE = 60.0
_END_DEADLINE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """What is simulated: so many agents with so many slots each; steps a second, 0 for no pauses.

    A server of another balancer has no slots; there is one.
    """

    num_agents: int
    slots: int
    rate: float


@dataclass(frozen=True, slots=True)
class Cores:
    """The balancer has one to itself; agents and client share the other."""

    balancer: int
    others: int


@dataclass(frozen=True, slots=True)
class Running:
    """A balancer that is ready at `address`."""

    pid: int
    address: str
    command: str


class Starter:
    """Starts processes on cores; leaving it ends them, the last one first."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._log = folder / "log"
        self.folder = folder
        root = Path(__file__).parents[2]
        self.environment = os.environ | {"PYTHONPATH": f"{root}:{root / '.links'}"}

    def start(self, core: int, *command: str) -> "subprocess.Popen[str]":
        """What it logs goes to a file, as a service's log does."""
        log = self._stack.enter_context(self._log.open("a"))
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=self.environment,
        )
        self._stack.callback(_ended, process)
        return process

    def ready(self, process: "subprocess.Popen[str]") -> dict[str, str]:
        """Waits for the ready line; returns its `key=value` words. Raises `RuntimeError`."""
        for line in process.stdout or ():
            if line.startswith("ready "):
                return dict(word.split("=", 1) for word in line.split() if "=" in word)
        raise RuntimeError(f"{process.args} ended: {self._log.read_text()[-1000:]}")

    def answering(
        self, process: "subprocess.Popen[str]", address: str, command: tuple[str, ...]
    ) -> Running:
        """Waits until a model is served. Raises `RuntimeError`."""
        until = time.monotonic() + _START_DEADLINE
        models = urllib.request.Request(
            f"http://{address}/v1/models", headers={"Authorization": f"Bearer {KEY}"}
        )
        while time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(models, timeout=1) as answer:
                    if b"simulated" in answer.read():
                        return Running(process.pid, address, " ".join(command))
            except (URLError, OSError):
                time.sleep(0.2)
        log = self._log.read_text()[-1000:]
        raise RuntimeError(f"{command[0]} does not serve at {address}: {log}")


def _ended(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_END_DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    """A port on which no process listens; for programs that cannot take any free one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _arriero(starter: Starter, cores: Cores, hosts: Hosts, _python: str) -> Running:
    command = (
        str(Path(sys.executable).parent / "balancer"),
        *("--inference-addr", "127.0.0.1:0", "--management-addr", "127.0.0.1:0"),
        *("--max-connections", "20000", "--max-buffered-requests", "20000"),
        *("--drain-timeout", "0s"),
    )
    balancer = starter.start(cores.balancer, *command)
    addresses = starter.ready(balancer)
    agents = starter.start(
        cores.others,
        *(sys.executable, "-m", "bench.balancer.agents"),
        *("--url", f"ws://{addresses['management']}"),
        *("--agents", str(hosts.num_agents), "--slots", str(hosts.slots)),
        *("--rate", str(hosts.rate)),
    )
    starter.ready(agents)
    return Running(balancer.pid, addresses["inference"], " ".join(command))


def _server(starter: Starter, core: int, hosts: Hosts) -> Running:
    """A server that generates by itself, with as many groups of requests as there are agents."""
    command = (
        *(sys.executable, "-m", "bench.balancer.backend"),
        *("--rate", str(hosts.rate), "--groups", str(hosts.num_agents)),
    )
    server = starter.start(core, *command)
    return Running(server.pid, starter.ready(server)["backend"], " ".join(command))


def _direct(starter: Starter, cores: Cores, hosts: Hosts, _python: str) -> Running:
    """No balancer: the server has its core, and writes what a balancer would have to write."""
    return _server(starter, cores.balancer, hosts)


def _backend(starter: Starter, cores: Cores, hosts: Hosts) -> str:
    return _server(starter, cores.others, hosts).address


def _sglang_router(starter: Starter, cores: Cores, hosts: Hosts, python: str) -> Running:
    backend = _backend(starter, cores, hosts)
    port = free_port()
    command = (
        *(python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"),
        *("--port", str(port), "--worker-urls", f"http://{backend}"),
        *("--policy", "round_robin", "--prometheus-port", str(free_port())),
        *("--log-level", "warn"),
    )
    router = starter.start(cores.balancer, *command)
    return starter.answering(router, f"127.0.0.1:{port}", command)


def _litellm(starter: Starter, cores: Cores, hosts: Hosts, python: str) -> Running:
    backend = _backend(starter, cores, hosts)
    port = free_port()
    config = starter.folder / "litellm.yaml"
    config.write_text(
        "model_list:\n- model_name: simulated\n  litellm_params:\n"
        "    model: openai/simulated\n    api_key: none\n"
        f"    api_base: http://{backend}/v1\n"
        f"general_settings:\n  master_key: {KEY}\n"
    )
    command = (
        str(Path(python).parent / "litellm"),
        *("--config", str(config), "--host", "127.0.0.1", "--port", str(port)),
    )
    proxy = starter.start(cores.balancer, *command)
    return starter.answering(proxy, f"127.0.0.1:{port}", command)


SIDES: dict[str, Callable[[Starter, Cores, Hosts, str], Running]] = {
    "direct": _direct,
    "arriero": _arriero,
    "sglang-router": _sglang_router,
    "litellm": _litellm,
}
PACKAGES = {"sglang-router": "sglang_router", "litellm": "litellm"}
"""The packages of the peers, which are measured where they are installed."""

FOR_OPENAI = ("direct", *PACKAGES)
"""Sides that know only OpenAI's API."""


def installed(side: str, python: str) -> bool:
    """Whether `python` can start this side."""
    if side not in PACKAGES:
        return True
    check = (
        f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({PACKAGES[side]!r}))"
    )
    return subprocess.run([python, "-c", check], check=False).returncode == 0


@contextmanager
def running(side: str, cores: Cores, hosts: Hosts, python: str) -> Iterator[Running]:
    """The side with its simulated hosts, until it is left."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        starter = Starter(stack, folder)
        yield SIDES[side](starter, cores, hosts, python)
