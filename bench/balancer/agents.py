"""Simulated agents: they speak the agents' protocol, compute nothing, and stamp each token.

A step gives each running request one token. With a rate, steps keep to their times and those of
different agents are spread evenly; without one, agents send as fast as the balancer reads.
"""

import argparse
import asyncio
import gc
import json
from collections import defaultdict
from collections.abc import Iterator

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from arriero.balancer.fleet.runtime.agent_socket import PATH
from arriero.shared.inference import AgentId, Rates, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Ended,
    Heartbeat,
    Hello,
    Output,
    PromptRead,
    encode_from_agent,
)
from arriero.shared.reports.model_info import ModelInfo
from bench.balancer.stamps import stamp
from bench.harness import Flags, at_least

MODEL = ModelInfo(
    name="simulated", architecture="none", parameters=0, size_bytes=0, context_size=1_000_000
)
PROMPT_TOKENS = 10
ITEMS_PER_FRAME = 128
"""With this many a frame stays below the length from which messages go in pieces."""

_HEARTBEAT = encode_from_agent(Heartbeat())
_IDLE_SECONDS = 0.5


class Agent:
    """One agent on its own socket."""

    def __init__(self, name: str, socket: ClientConnection, slots: int) -> None:
        self._name = name
        self._socket = socket
        self._slots = slots
        self._heads: dict[str, bytes] = {}
        self._wanted: dict[str, int] = {}
        self._last_steps: defaultdict[int, list[str]] = defaultdict(list)
        self._new: list[str] = []
        self._step = 0
        self._has_work = asyncio.Event()

    async def hello(self) -> None:
        """Joins the fleet."""
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=AgentId(self._name),
            name=self._name,
            version="simulated",
            slots=self._slots,
            model=MODEL,
        )
        await self._send(encode_from_agent(hello))

    async def listen(self) -> None:
        """Takes what the balancer sends, until it closes the socket."""
        try:
            async for frame in self._socket:
                message = json.loads(frame)
                if message["type"] == "start":
                    self._start(message["id"], message["request"]["max_tokens"])
                elif message["type"] == "cancel":
                    self._heads.pop(message["id"], None)
        except ConnectionClosed:
            return

    async def generate(self, period: float, phase: float) -> None:
        """Steps every `period` seconds, shifted by `phase`; without pauses if it is 0."""
        loop = asyncio.get_running_loop()
        due = loop.time() + phase
        while True:
            if not self._heads and not self._new:
                await self._rest()
                due = max(due, loop.time())
            due += period
            await asyncio.sleep(max(due - loop.time(), 0))
            for frame in list(self._frames()):
                await self._send(frame)

    def _start(self, id: str, num_tokens: int) -> None:
        self._new.append(id)
        self._wanted[id] = num_tokens
        self._has_work.set()

    async def _rest(self) -> None:
        """Waits for a request; the balancer hears meanwhile that the agent lives."""
        self._has_work.clear()
        while not self._has_work.is_set():
            try:
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._has_work.wait()
            except TimeoutError:
                await self._send(_HEARTBEAT)

    def _frames(self) -> Iterator[bytes]:
        """One step. A token's frame is put together by hand: the core is shared with the client."""
        self._step += 1
        if self._new:
            yield self._begun()
        heads = list(self._heads.values())
        for first in range(0, len(heads), ITEMS_PER_FRAME):
            tail = stamp() + b'","tokens":[7]}'
            items = (tail + b",").join(heads[first : first + ITEMS_PER_FRAME])
            yield b'{"type":"output","items":[%b%b]}' % (items, tail)
        ended = [id for id in self._last_steps.pop(self._step, ()) if id in self._heads]
        if ended:
            yield self._ended(ended)

    def _begun(self) -> bytes:
        items = [
            PromptRead(id=id, prompt_tokens=PROMPT_TOKENS, cached_tokens=0)  # type: ignore[arg-type]
            for id in self._new
        ]
        for id in self._new:
            self._heads[id] = b'{"type":"piece","id":"%b","text":"' % id.encode()
            self._last_steps[self._step + self._wanted[id] - 1].append(id)
        self._new.clear()
        return encode_from_agent(Output(items=tuple(items)))

    def _ended(self, ids: list[str]) -> bytes:
        items = []
        for id in ids:
            del self._heads[id]
            usage = Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=self._wanted.pop(id))
            items.append(Ended(id=id, finish_reason="length", usage=usage, rates=Rates()))  # type: ignore[arg-type]
        return encode_from_agent(Output(items=tuple(items)))

    async def _send(self, frame: bytes) -> None:
        await self._socket.send(frame, text=True)


async def run(url: str, num_agents: int, slots: int, rate: float) -> None:
    """Until the balancer closes the sockets."""
    period = 1 / rate if rate else 0.0
    async with asyncio.TaskGroup() as group:
        steppers = []
        listeners = []
        for number in range(num_agents):
            socket = await connect(url + PATH, compression=None, ping_interval=None, proxy=None)
            agent = Agent(f"simulated-{number}", socket, slots)
            await agent.hello()
            listeners.append(group.create_task(agent.listen()))
            phase = number * period / num_agents
            steppers.append(group.create_task(agent.generate(period, phase)))
        print(f"ready agents={num_agents}", flush=True)
        await asyncio.wait(listeners)
        for stepper in steppers:
            stepper.cancel()


def parse() -> argparse.Namespace:
    parser = Flags("balancer.agents", __doc__)
    parser.add_argument("--url", required=True, help="the balancer's management port, ws://…")
    parser.add_argument("--agents", type=at_least(1), default=4)
    parser.add_argument("--slots", type=at_least(1), default=64, help="of each agent")
    parser.add_argument("--rate", type=float, default=20.0, help="steps a second; 0: no pauses")
    return parser.parse_args()


if __name__ == "__main__":
    given = parse()
    gc.freeze()
    gc.disable()  # it shares a core with the client
    uvloop.run(run(given.url, given.agents, given.slots, given.rate))
