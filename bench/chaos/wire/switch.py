"""The wire between the hosts of a run: a process that carries packets between TUN devices.

`python -m bench.chaos.wire.switch SEED HOST=FD …`: the device of the host with that number. A
packet goes to the host whose number is the third part of the address it is for. Each line of
standard input is `ADDRESS DELAY LOSS RATE CUT_TO CUT_FROM`: the weather on the way to and from that
address.
"""

import asyncio
import os
import sys
from random import Random

import uvloop

from bench.chaos.wire.line import Line, Weather

MOST = 2048
"""Bytes of the largest packet."""

AT_ONCE = 64
"""Packets that are read from a device before another has its turn."""

Address = bytes


class Switch:
    """Lines are made as addresses turn up; at first nothing disturbs them."""

    def __init__(self, seed: int, devices: dict[int, int]) -> None:
        self._chance = Random(seed)
        self._devices = devices
        self._to: dict[Address, Line] = {}
        self._from: dict[Address, Line] = {}

    def readable(self, device: int) -> None:
        """Carry what waits at `device`."""
        for _ in range(AT_ONCE):
            try:
                packet = os.read(device, MOST)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:
                self._carry(packet)

    def _carry(self, packet: bytes) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        sender, receiver = packet[12:16], packet[16:20]
        device = self._devices.get(receiver[2])
        if device is None:
            return
        left = self._line(self._from, sender).arrival(now, len(packet))
        if left is None:
            return
        arrives = self._line(self._to, receiver).arrival(left, len(packet))
        if arrives is None:
            return
        if arrives <= now:
            _deliver(device, packet)
        else:
            loop.call_at(arrives, _deliver, device, packet)

    def _line(self, lines: dict[Address, Line], address: Address) -> Line:
        if (line := lines.get(address)) is None:
            line = lines[address] = Line(self._chance)
        return line

    def set_weather(self, order: str) -> None:
        """One line of standard input."""
        name, *numbers = order.split()
        delay, loss, rate, cut_to, cut_from = map(float, numbers)
        address = bytes(map(int, name.split(".")))
        self._line(self._to, address).weather = Weather(delay, loss, rate, bool(cut_to))
        self._line(self._from, address).weather = Weather(delay, loss, rate, bool(cut_from))


def _deliver(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except BlockingIOError:
        return  # A full queue drops, as routers do.


async def run(seed: int, devices: dict[int, int]) -> None:
    """Carries packets until standard input ends."""
    loop = asyncio.get_running_loop()
    switch = Switch(seed, devices)
    for device in devices.values():
        os.set_blocking(device, False)
        loop.add_reader(device, switch.readable, device)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while order := await reader.readline():
        switch.set_weather(order.decode())
        print("set", flush=True)


def main() -> None:
    seed, *pairs = sys.argv[1:]
    devices = {int(host): int(device) for host, device in (pair.split("=") for pair in pairs)}
    uvloop.run(run(int(seed), devices))


if __name__ == "__main__":
    main()
