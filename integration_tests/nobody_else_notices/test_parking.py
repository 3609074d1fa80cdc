"""A long prefix is parked for another prompt, saved and restored, beside a stream.

How much is copied before each step is shown where it is counted, by the tests of the KV cache.
"""

from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from arriero.agent.engine.pace import STEPS
from integration_tests.corpus import generate
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

PARKED = "arriero_agent_parked_cells"
CELLS = 6144
SLOWLY = "50"
"""Steps a second, so that the stream takes few of the cells until the test is over."""
MOST = 0.6
"""The part of all cells that each of two prompts takes: there is never room for both."""


async def parked_cells(fleet: Fleet) -> float:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(one.value for family in families for one in family.samples if one.name == PARKED)


async def ask(fleet: Fleet, word: str, **fields: Any) -> dict[str, int]:
    """How many tokens the prompt has, and how many of them were cached."""
    body = {"prompt": [ord(word)] * int(MOST * CELLS), "max_tokens": 1, "temperature": 0}
    end = (await generate(fleet.http, fleet.inference, body | fields)).end
    assert end["event"] == "done", end
    return dict(end["usage"])


async def test_streams_go_on_while_a_prefix_makes_room(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(
        context_size=CELLS, kv_cells=CELLS, cache_dir=tmp_path, env={STEPS: SLOWLY}
    )

    trials = iter(("ab", "cd", "ef"))

    async def attack(seen: Bystander) -> None:
        first, second = next(trials)
        asked = await ask(fleet, first, cache_key=first, save_cache=True)
        assert asked["cached_tokens"] == 0
        assert (await ask(fleet, second))["cached_tokens"] == 0

        async def is_parked() -> bool:
            return await parked_cells(fleet) > 0

        await until(is_parked)
        again = await ask(fleet, first)
        assert again["cached_tokens"] == again["prompt_tokens"] - 1

    await unnoticed(fleet, attack)
