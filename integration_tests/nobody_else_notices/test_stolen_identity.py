"""An agent that says the id of another is refused, and that one does not notice."""

import signal
from pathlib import Path
from typing import Any

import pytest

from arriero.client import Client
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander
from integration_tests.rogue_agent import RogueAgent

ADMIN = f"ark_{'a' * 43}"
TIMES = 20


async def id_of_agent(fleet: Fleet) -> str:
    [agent] = await fleet.view("agents")
    return str(agent["id"])


async def steal(fleet: Fleet, id: str, **more: Any) -> None:
    """Dials with the id again and again, as every kind of newcomer."""
    for number in range(TIMES):
        taking = {"takes_over": bool(number % 2)}
        async with RogueAgent.dial(fleet, "thief", agent_id=id, slots=4096, **taking, **more) as it:
            assert it.answer["type"] == "reject", it.answer
            assert it.answer["retry"]
            assert it.answer["code"] == "identity_taken"


@pytest.mark.parametrize("secret", [None, "0" * 64])
async def test_without_keys_an_id_belongs_to_the_process_that_said_it(
    serving: Fleet, secret: str | None
) -> None:
    id = await id_of_agent(serving)
    async with bystander(serving):
        await steal(serving, id, secret=secret)
    [agent] = await serving.view("agents")
    assert (agent["id"], agent["name"]) == (id, "agent-1")
    assert len([line for line in serving.balancer.stderr if "dialled again" in line]) == 0


async def test_with_keys_it_belongs_to_the_key(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "admin.key"
    file.write_text(ADMIN)
    await fleet.start_balancer(admin_key_file=file)
    async with Client(management=fleet.management, key=ADMIN) as client:
        keys = {
            name: (await client.management.create_key(name, "agent"))["key"]
            for name in ("good", "thief")
        }
        await fleet.start_agent(context_size=LONG_CONTEXT, env={"ARRIERO_AGENT_KEY": keys["good"]})
        [agent] = await client.management.agents()
        headers = {"Authorization": f"Bearer {keys['thief']}"}
        await steal(fleet, agent["id"], headers=headers)
        [still] = await client.management.agents()
        assert (still["id"], still["name"]) == (agent["id"], "agent-1")

        said = {"agent_id": "early", "host": "early"}
        async with (
            RogueAgent.dial(fleet, "thief", headers=headers, **said) as thief,
            RogueAgent.dial(
                fleet, "owner", headers={"Authorization": f"Bearer {keys['good']}"}, **said
            ) as owner,
            RogueAgent.dial(fleet, "other", headers=headers, host=agent["id"]) as other,
        ):
            assert {it.answer["type"] for it in (thief, owner, other)} == {"welcome"}
            agents = {each["name"]: each for each in await client.management.agents()}
            assert agents["agent-1"]["id"] == agent["id"]
            assert len({each["id"] for each in agents.values()}) == len(agents) == 4
            for each in agents.values():
                assert "identity_claimed" in [issue["code"] for issue in each["issues"]]

        async def are_gone() -> bool:
            agents = await client.management.agents()
            return [(each["name"], each["issues"]) for each in agents] == [("agent-1", [])]

        await until(are_gone)


async def test_an_agent_whose_engine_crashes_is_still_itself(serving: Fleet) -> None:
    """Its supervisor stands in, a new engine process takes over, and a thief gets in nowhere."""
    id = await id_of_agent(serving)
    serving.agents[0].signal_engine(signal.SIGKILL)

    async def is_back() -> bool:
        """The engine was there, then the supervisor, then another engine."""
        joined = [line for line in serving.balancer.stderr if "agent connected" in line]
        agents = await serving.view("agents")
        return len(joined) == 3 and [each["state"] for each in agents] == ["ready"]

    await until(is_back, deadline=30.0)
    async with bystander(serving):
        await steal(serving, id)
    assert await id_of_agent(serving) == id
