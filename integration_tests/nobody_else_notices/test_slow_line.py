"""A large body, and a large answer, on the slow line of an agent whose streams go on."""

import json
from io import BytesIO

from arriero.agent.engine.pace import STEPS
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.throttle import slow_line

BYTES_PER_SECOND = 100_000
SLOWLY = "50"
"""Tokens a second, so that the stream leaves most of the line to what is large."""
PATIENCE = 6
"""Seconds without a sign of life: more than a process stands still by chance."""
NUM_WORDS = 3 * BYTES_PER_SECOND * PATIENCE // (2 * len("a slot "))
"""As text half again as long on that line as the heartbeat timeout, and the answer likewise."""


async def test_a_large_query_over_a_slow_line(fleet: Fleet) -> None:
    await fleet.start_balancer(heartbeat_interval="300ms", heartbeat_timeout=f"{PATIENCE}s")
    balancer = fleet.balancer.ready["management"]
    async with slow_line(balancer, BYTES_PER_SECOND) as address:
        agent = await fleet.start_agent(
            balancer=f"ws://{address}", context_size=LONG_CONTEXT, env={STEPS: SLOWLY}
        )

        async def attack(seen: Bystander) -> None:
            body = BytesIO(json.dumps({"text": "a slot " * NUM_WORDS}).encode())
            url = f"{fleet.inference}/api/v1/tokenize"
            headers = {"Content-Type": "application/json"}
            async with fleet.http.post(url, data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                answer = await response.json()
            assert len(answer["tokens"]) >= NUM_WORDS

        await unnoticed(fleet, attack)
        # Before the line is closed, which the agent then says.
        assert not [line for line in agent.stderr if "lost the balancer" in line]
