"""Words that a splitter of texts needs megabytes of stack for, wherever a text of a client goes."""

from typing import Any

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

WORD = "a" * 40_000
"""At 320 bytes for each letter more than an ordinary thread has."""

TOO_LONG = "a" * 400_000

PROMPT = {"truncate_prompt_tokens": 9, "max_tokens": 1, "stream": False}
"""All of it is tokenised, and little is computed."""


async def post(fleet: Fleet, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as response:
        return response.status, await response.json(content_type=None)


def asked(word: str) -> list[tuple[str, dict[str, Any]]]:
    """Each way by which a text reaches the tokenizer."""
    chat = [{"role": "user", "content": word}]
    return [
        ("/api/v1/generate", PROMPT | {"prompt": word}),
        ("/api/v1/generate", PROMPT | {"messages": chat}),
        ("/v1/completions", PROMPT | {"model": "arriero-demo", "prompt": word}),
        ("/api/v1/tokenize", {"text": word}),
        ("/api/v1/count_tokens", {"messages": chat}),
        ("/v1/messages/count_tokens", {"model": "arriero-demo", "messages": chat}),
        ("/api/v1/embed", {"input": [word]}),
        ("/v1/embeddings", {"model": "arriero-demo", "input": word}),
    ]


async def test_they_end_no_engine(fleet: Fleet) -> None:
    await fleet.start_balancer()
    agent = await fleet.start_agent(
        context_size=LONG_CONTEXT, override_kv="tokenizer.ggml.pre=str:gpt-4o"
    )

    async def attack(seen: Bystander) -> None:
        for path, body in asked(WORD):
            status, answer = await post(fleet, path, body)
            assert status == 200 or "too long" in str(answer), (path, status, answer)
        for path, body in asked(TOO_LONG):
            status, answer = await post(fleet, path, body)
            assert status == 400, (path, status, answer)
            is_told = any(why in str(answer) for why in ("without a break", "too long"))
            assert is_told, (path, answer)

    await unnoticed(fleet, attack)
    assert len(agent.engine_pids) == 1
