"""How long a stream is silent when its agent is killed: `python -m bench.pause`.

A balancer and two agents on the demo model; in each round a greedy stream's agent gets SIGKILL in
the middle of the answer.
"""

import asyncio
import signal
from contextlib import AsyncExitStack

from bench.answers import Answer, generate
from bench.figures import longest_gap, spread
from bench.harness import Flags, finished, save
from integration_tests.corpus import ENDLESS
from integration_tests.daemons import Daemon, Fleet

NUM_TOKENS = 400
KILLED_AFTER = 100


async def silence(fleet: Fleet, agents: list[Daemon]) -> float:
    """Seconds of the longest gap between two tokens, with a kill on the way."""
    answer = Answer(under_way_after=KILLED_AFTER)
    async with asyncio.TaskGroup() as group:
        group.create_task(generate(fleet, ENDLESS | {"max_tokens": NUM_TOKENS}, answer))
        await answer.is_under_way.wait()
        await kill_its_agent(fleet, agents)
    return longest_gap(answer.times)


async def kill_its_agent(fleet: Fleet, agents: list[Daemon]) -> None:
    """The agent with the only busy slot."""
    views = await fleet.view("agents")
    [name] = [view["name"] for view in views if view["slots"]["busy"]]
    agent = next(agent for agent in agents if agent.ready["name"] == name)
    agents.remove(agent)
    agent.signal_all(signal.SIGKILL)


async def measure(rounds: int) -> list[float]:
    """The longest silence of each round."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        agents: list[Daemon] = []
        found = []
        for _ in range(rounds):
            while len(agents) < 2:
                agents.append(await fleet.start_agent())
            found.append(await silence(fleet, agents))
        return found


def main() -> None:
    flags = Flags("pause", __doc__)
    flags.rounds(5)
    found = finished(measure(flags.parse_args().rounds))
    print(f"longest silence: {spread([1000 * each for each in found], '{:.0f} ms'.format)}")
    save("pause", {"longest silences": found})


if __name__ == "__main__":
    main()
