"""A key with limits in the hands of the official clients: they wait, try again, and are counted."""

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import openai

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, plain_cases
from integration_tests.daemons import DEADLINE, Fleet, until

MODEL = "arriero-demo"
ADMIN = "ark_" + "a" * 43
CASE = plain_cases()[0]


class Keys:
    """A fleet that an admin has made keys for."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._admin = {"Authorization": f"Bearer {ADMIN}"}

    async def create(self, **spec: object) -> str:
        url = f"{self._fleet.management}/api/v1/keys"
        async with self._fleet.http.post(url, json=spec, headers=self._admin) as response:
            assert response.status == 201, await response.text()
            return str((await response.json())["key"])

    async def get(self, path: str) -> Any:
        async with self._fleet.http.get(
            f"{self._fleet.management}{path}", headers=self._admin
        ) as response:
            assert response.status == 200
            return await response.json()


async def test_a_key_with_limits(fleet: Fleet, tmp_path: Path) -> None:
    admin_file, agent_file = tmp_path / "admin.key", tmp_path / "agent.key"
    admin_file.write_text(ADMIN)
    await fleet.start_balancer(admin_key_file=admin_file)
    keys = Keys(fleet)
    agent_file.write_text(await keys.create(name="host", role="agent"))
    agent = await fleet.start_agent(key_file=agent_file, context_size=LONG_CONTEXT)
    alice = await keys.create(
        name="alice", role="inference", max_concurrent=1, requests_per_minute=50, max_tokens=10_000
    )
    messages = CASE.body["messages"]
    async with (
        openai.AsyncOpenAI(
            timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key=alice, max_retries=20
        ) as of_openai,
        anthropic.AsyncAnthropic(
            timeout=DEADLINE, base_url=fleet.inference, api_key=alice, max_retries=20
        ) as of_anthropic,
    ):
        await agent.pace.hand_out(5)
        running = await of_openai.chat.completions.create(
            model=MODEL,
            messages=ENDLESS["messages"],
            stream=True,
            extra_body={"ignore_eos": True},
        )
        await anext(aiter(running))
        assert running.response.headers["x-ratelimit-remaining-requests"] == "49"
        impatient = of_openai.with_options(max_retries=0)
        try:
            await impatient.chat.completions.create(model=MODEL, messages=messages)
            raise AssertionError("it was over its limit")
        except openai.RateLimitError as error:
            assert error.code == "rate_limit_exceeded"
            assert error.response.headers["retry-after"] == "1"
        waiting = [
            asyncio.create_task(
                of_openai.chat.completions.create(
                    model=MODEL, messages=messages, temperature=0, max_tokens=100
                )
            ),
            asyncio.create_task(
                of_anthropic.messages.create(
                    model=MODEL, messages=messages, max_tokens=100, extra_body={"temperature": 0}
                )
            ),
        ]

        async def were_refused() -> bool:
            refused = "/api/v1/requests?state=ended&caller=alice&code=rate_limited"
            return len((await keys.get(refused))["requests"]) >= 3

        await until(were_refused)
        await running.close()
        await agent.pace.let_go()
        async with asyncio.timeout(DEADLINE):
            chat, message = await asyncio.gather(*waiting)
    assert chat.choices[0].message.content == CASE.answer
    assert message.content[0].text == CASE.answer
    usage = await keys.get("/api/v1/usage?since=1d")
    [row] = [each for each in usage["usage"] if each["caller"] == "alice"]
    assert row["requests"] == row["errors"] + 3
    assert row["completion_tokens"] >= 2 * message.usage.output_tokens
    assert row["prompt_tokens"] > 2 * message.usage.input_tokens
