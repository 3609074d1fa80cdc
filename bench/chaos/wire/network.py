"""Where daemons run: on loopback, or each in a network namespace with a wire that can be bad.

`enter` starts the program anew in namespaces of its own (network, mounts, processes). They end with
it, and so does every process in them.
"""

import asyncio
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from bench.chaos.wire.line import FAIR, Weather

IP = shutil.which("ip") or "ip"
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
BALANCER, CLIENTS, FIRST_AGENT = 0, 1, 2
"""Numbers of hosts: the third part of their addresses."""

INSIDE = "ARRIERO_CHAOS_INSIDE"
"""Variable that says that the process is in namespaces of its own."""

REAPER = ("sh", "-c", '"$@"; exit $?', "sh")
"""The first process of a namespace gets the children of killed daemons; a shell waits for them."""

OPERATOR = "10.77.1.1"
"""The address from which a run looks at metrics; its weather is always fair."""

CLIENT = "10.77.1.2"
FIRST_GHOST, NUM_GHOSTS = 10, 200


class Loopback:
    """All on one host: nothing can be done to its network."""

    balancer = "127.0.0.1"
    is_real = False

    def inside(self, host: int) -> tuple[str, ...]:
        return ()

    def client_address(self) -> str | None:
        return None

    def ghost_address(self) -> str | None:
        return None

    def agent_address(self, number: int) -> str:
        return "127.0.0.1"

    async def set_weather(
        self, address: str, weather: Weather = FAIR, *, to: bool = True, from_: bool = True
    ) -> None:
        raise NotImplementedError("loopback has no weather")


class Namespaces:
    """A host each, with a TUN device; a `switch` between them."""

    balancer = f"10.77.{BALANCER}.1"
    is_real = True

    def __init__(self, wire: asyncio.subprocess.Process) -> None:
        self._wire = wire
        self._num_ghosts = 0
        self._orders = asyncio.Lock()

    @classmethod
    async def make(cls, num_agents: int, seed: int) -> "Namespaces":
        """Raises `OSError` or `subprocess.CalledProcessError` where the machine refuses."""
        devices = {host: _host(host) for host in range(FIRST_AGENT + num_agents)}
        pairs = (f"{host}={device}" for host, device in devices.items())
        wire = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.chaos.wire.switch", str(seed), *pairs),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=tuple(devices.values()),
        )
        for device in devices.values():
            os.close(device)
        return cls(wire)

    def inside(self, host: int) -> tuple[str, ...]:
        """The words before a command that runs it on `host`."""
        return () if host == CLIENTS else (IP, "netns", "exec", _name(host))

    def client_address(self) -> str | None:
        """From which address clients connect; on loopback, any."""
        return CLIENT

    def ghost_address(self) -> str | None:
        """An address of a client's own, which no other client has had lately."""
        self._num_ghosts += 1
        return f"10.77.{CLIENTS}.{FIRST_GHOST + self._num_ghosts % NUM_GHOSTS}"

    def agent_address(self, number: int) -> str:
        """The address of the agent with this number, from 0 on."""
        return f"10.77.{FIRST_AGENT + number}.1"

    async def set_weather(
        self, address: str, weather: Weather = FAIR, *, to: bool = True, from_: bool = True
    ) -> None:
        """On the way to and from `address`; a cut counts if `to` or `from_` says so."""
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        cuts = f"{int(weather.is_cut and to)} {int(weather.is_cut and from_)}"
        order = f"{address} {weather.delay} {weather.loss} {weather.rate} {cuts}\n"
        async with self._orders:
            self._wire.stdin.write(order.encode())
            await self._wire.stdout.readline()

    async def close(self) -> None:
        """Ends the wire; the namespaces go with the process."""
        assert self._wire.stdin is not None
        self._wire.stdin.close()
        await self._wire.wait()


Network = Loopback | Namespaces
"""Where a run's hosts are."""


def _name(host: int) -> str:
    return f"chaos-{host}"


def _host(host: int) -> int:
    """Makes a namespace with a device and an address; returns the device's file."""
    name = f"chaos{host}"
    device = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    if host == CLIENTS:
        ip: tuple[str, ...] = ("ip",)
        numbers = [1, 2, *range(FIRST_GHOST, FIRST_GHOST + NUM_GHOSTS)]
    else:
        _do("ip", "netns", "add", _name(host))
        _do("ip", "link", "set", name, "netns", _name(host))
        ip = ("ip", "-n", _name(host))
        numbers = [1]
    lines = [f"addr add 10.77.{host}.{number}/16 dev {name}" for number in numbers]
    lines += ["link set lo up", f"link set {name} up txqueuelen 2000 mtu 1500"]
    subprocess.run((*ip, "-batch", "-"), input="\n".join(lines), text=True, check=True)
    return device


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def enter() -> bool:
    """Starts this program anew in namespaces of its own; returns only if that cannot be.

    True: it is there already.
    """
    if os.environ.get(INSIDE):
        _do("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", "/run")
        return True
    if _works(alone := _alone()):
        os.environ[INSIDE] = "yes"
        _become(*alone, *REAPER, sys.executable, "-m", "bench.chaos", *sys.argv[1:])
    return False


def _alone() -> list[str]:
    """The words before a command that runs it in namespaces of its own."""
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        alone.append("--map-root-user")
    return alone


def _become(*command: str) -> NoReturn:
    os.execvp(command[0], command)


def _works(alone: list[str]) -> bool:
    test = f"test -w {TUN} && ip link show lo >/dev/null && mount -t tmpfs none /mnt"
    try:
        return subprocess.run([*alone, "sh", "-c", test], capture_output=True).returncode == 0
    except OSError:
        return False
