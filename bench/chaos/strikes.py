"""Carrying out faults: each strikes, lasts, is taken back, and waits until all is well again."""

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.chaos.clients.rogues import Rogues
from bench.chaos.clients.rude_clients import RudeClients
from bench.chaos.hosts import READY_WITHIN, Hosts
from bench.chaos.plan import Fault
from bench.chaos.wire.line import FAIR, Weather
from integration_tests.daemons import Daemon, until

STORM = 5
NO_MORE_FILES = 3
DAY = 86_400.0
Strike = Callable[["World", Fault], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class World:
    """What can be struck."""

    hosts: Hosts
    clients: RudeClients
    rogues: Rogues


async def strike(world: World, fault: Fault) -> None:
    """Returns when what was struck is well again. Raises `Unwell`."""
    await STRIKES[fault.kind.name](world, fault)
    await world.hosts.until_well()


def _agent(world: World, fault: Fault) -> Daemon:
    return world.hosts.agents[fault.agent]


async def _kill_engine(world: World, fault: Fault) -> None:
    """Until the supervisor has started another."""
    agent = _agent(world, fault)
    num = len(agent.engine_pids)
    agent.signal_engine(signal.SIGKILL)

    async def is_back() -> bool:
        return len(agent.engine_pids) > num

    await until(is_back, deadline=READY_WITHIN)


async def _kill_agent(world: World, fault: Fault) -> None:
    await _killed(_agent(world, fault))
    await world.hosts.start_agent(fault.agent)


async def _kill_all(world: World, fault: Fault) -> None:
    await asyncio.gather(*map(_killed, world.hosts.agents))
    await asyncio.sleep(fault.lasts)
    await asyncio.gather(*map(world.hosts.start_agent, range(world.hosts.num_agents)))


async def _killed(daemon: Daemon) -> None:
    daemon.signal_all(signal.SIGKILL)
    await daemon.exit_code()


async def _stop_agent(world: World, fault: Fault) -> None:
    await _stopped(_agent(world, fault).pids, fault.lasts)


async def _stop_engine(world: World, fault: Fault) -> None:
    await _stopped(_agent(world, fault).engine_pids[-1:], fault.lasts)


async def _stop_supervisor(world: World, fault: Fault) -> None:
    await _stopped([_agent(world, fault).process.pid], fault.lasts)


async def _stop_balancer(world: World, fault: Fault) -> None:
    await _stopped([world.hosts.balancer.process.pid], fault.lasts)


async def _stopped(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def _term_agent(world: World, fault: Fault, times: int = 1) -> None:
    await _termed(_agent(world, fault), times)
    await world.hosts.start_agent(fault.agent)


async def _rolling(world: World, fault: Fault) -> None:
    for number in range(world.hosts.num_agents):
        await _termed(world.hosts.agents[number])
        await world.hosts.start_agent(number)
        await world.hosts.until_well()


async def _restart_balancer(world: World, fault: Fault) -> None:
    await _termed(world.hosts.balancer)
    await world.hosts.start_balancer()


async def _kill_balancer(world: World, fault: Fault) -> None:
    await _killed(world.hosts.balancer)
    await world.hosts.start_balancer()


async def _termed(daemon: Daemon, times: int = 1) -> None:
    for _ in range(times):
        with suppress(ProcessLookupError):
            daemon.signal(signal.SIGTERM)
    await daemon.exit_code()


async def _vanish(world: World, fault: Fault) -> None:
    await world.clients.vanish(fault.amount)


async def _stop_reading(world: World, fault: Fault) -> None:
    await world.clients.stop_reading(fault.lasts)


async def _rogue_client(world: World, fault: Fault) -> None:
    await world.rogues.client(fault.amount, fault.lasts)


async def _rogue_agent(world: World, fault: Fault) -> None:
    await world.rogues.agent(fault.amount, fault.lasts)


async def _ghost(world: World, fault: Fault) -> None:
    await world.clients.ghost()


async def _part_client(world: World, fault: Fault) -> None:
    network = world.hosts.ground.network
    await _bad(world, network.client_address() or "", Weather(is_cut=True), fault.lasts)


async def _partition(world: World, fault: Fault, *, to: bool = True, from_: bool = True) -> None:
    await _at_agent(world, fault, Weather(is_cut=True), to=to, from_=from_)


async def _power_off(world: World, fault: Fault) -> None:
    """Its sockets are never closed: the balancer hears nothing more."""
    network = world.hosts.ground.network
    address = network.agent_address(fault.agent)
    await network.set_weather(address, Weather(is_cut=True))
    await _killed(_agent(world, fault))
    await asyncio.sleep(fault.lasts)
    await network.set_weather(address, FAIR)
    await world.hosts.start_agent(fault.agent)


async def _delay(world: World, fault: Fault) -> None:
    await _at_agent(world, fault, Weather(delay=0.05 + 0.35 * fault.amount))


async def _loss(world: World, fault: Fault) -> None:
    await _at_agent(world, fault, Weather(loss=0.02 + 0.18 * fault.amount))


async def _bandwidth(world: World, fault: Fault) -> None:
    await _at_agent(world, fault, Weather(rate=4_000 + 26_000 * fault.amount))


async def _at_agent(
    world: World, fault: Fault, weather: Weather, *, to: bool = True, from_: bool = True
) -> None:
    address = world.hosts.ground.network.agent_address(fault.agent)
    await _bad(world, address, weather, fault.lasts, to=to, from_=from_)


async def _bad(
    world: World,
    address: str,
    weather: Weather,
    seconds: float,
    *,
    to: bool = True,
    from_: bool = True,
) -> None:
    network = world.hosts.ground.network
    await network.set_weather(address, weather, to=to, from_=from_)
    await asyncio.sleep(seconds)
    await network.set_weather(address, FAIR)


async def _disk_full(world: World, fault: Fault) -> None:
    filler = world.hosts.ground.disk / "filler"
    _fill(filler)
    await asyncio.sleep(fault.lasts)
    filler.unlink()


def _fill(path: Path) -> None:
    """Takes what is free on the file system of `path`."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 512, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


async def _clock(world: World, fault: Fault) -> None:
    """Forwards or back; up to a day."""
    clock = world.hosts.ground.clock
    assert clock is not None
    clock.set_wrong_by((fault.amount - 0.5) * 2 * DAY)
    await asyncio.sleep(fault.lasts)
    clock.set_wrong_by(0.0)


async def _files(world: World, fault: Fault) -> None:
    pid = world.hosts.balancer.process.pid
    with _limited(pid, resource.RLIMIT_NOFILE, NO_MORE_FILES):
        await asyncio.sleep(fault.lasts)


async def _memory(world: World, fault: Fault) -> None:
    pid = _agent(world, fault).engine_pids[-1]
    with _limited(pid, resource.RLIMIT_DATA, _num_bytes(pid) // 2):
        await asyncio.sleep(fault.lasts)


def _num_bytes(pid: int) -> int:
    """What counts against RLIMIT_DATA."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


@contextmanager
def _limited(pid: int, which: int, most: int) -> Iterator[None]:
    _, hard = before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (most, hard))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)


STRIKES: dict[str, Strike] = {
    "kill-engine": _kill_engine,
    "kill-agent": _kill_agent,
    "kill-all": _kill_all,
    "stop-agent": _stop_agent,
    "stop-engine": _stop_engine,
    "stop-supervisor": _stop_supervisor,
    "term-agent": _term_agent,
    "term-storm": partial(_term_agent, times=STORM),
    "rolling": _rolling,
    "restart-balancer": _restart_balancer,
    "kill-balancer": _kill_balancer,
    "stop-balancer": _stop_balancer,
    "vanish": _vanish,
    "stop-reading": _stop_reading,
    "rogue-client": _rogue_client,
    "rogue-agent": _rogue_agent,
    "ghost": _ghost,
    "part-client": _part_client,
    "partition": _partition,
    "partition-to": partial(_partition, from_=False),
    "partition-from": partial(_partition, to=False),
    "power-off": _power_off,
    "delay": _delay,
    "loss": _loss,
    "bandwidth": _bandwidth,
    "disk-full": _disk_full,
    "clock": _clock,
    "files": _files,
    "memory": _memory,
}
"""How each kind is carried out."""
