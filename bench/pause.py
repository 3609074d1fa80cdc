"""How long a stream is silent when its agent is killed: `python -m bench.pause`.

A balancer and two agents on the demo model; in each round a greedy stream's agent gets SIGKILL in
the middle of the answer. Prints the longest silence of each round, in milliseconds.
"""

import asyncio
import signal
import time
from contextlib import AsyncExitStack

from integration_tests.corpus import ENDLESS
from integration_tests.daemons import Daemon, Fleet

ROUNDS = 5
NUM_TOKENS = 400
KILLED_AFTER = 100


async def silence(fleet: Fleet, agents: list[Daemon]) -> float:
    """Milliseconds of the longest pause between two events, with a kill on the way."""
    body = ENDLESS | {"max_tokens": NUM_TOKENS}
    longest, num_events, last = 0.0, 0, 0.0
    async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
        async for _ in response.content:
            now = time.perf_counter()
            longest = max(longest, now - last) if num_events else 0.0
            last, num_events = now, num_events + 1
            if num_events == KILLED_AFTER:
                await kill_its_agent(fleet, agents)
    return longest * 1000


async def kill_its_agent(fleet: Fleet, agents: list[Daemon]) -> None:
    """The agent with the only busy slot."""
    views = await fleet.view("agents")
    [name] = [view["name"] for view in views if view["slots"]["busy"]]
    agent = next(agent for agent in agents if agent.ready["name"] == name)
    agents.remove(agent)
    agent.signal_all(signal.SIGKILL)


async def main() -> None:
    """Print a line a round."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        agents: list[Daemon] = []
        for number in range(ROUNDS):
            while len(agents) < 2:
                agents.append(await fleet.start_agent())
            print(f"round {number + 1}: {await silence(fleet, agents):.0f} ms", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
