"""Sliding-window, hybrid and recurrent models through both daemons: nothing is computed twice.

What is expected is what is common with what was computed before, less a few tokens that open an
answer, or a checkpoint's distance.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.patterns import Message, said, words
from bench.small_models import RECURRENT, WINDOWED, write
from integration_tests.daemons import Fleet

KINDS = (*WINDOWED, *RECURRENT)
CLOSE = 40
"""Tokens: two checkpoints of a prompt may be so close that there is but one."""
MESSAGE = 140
"""Tokens of a message of 100 words, at most."""


class Chats:
    """Asks one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def ask(self, *messages: Message, num_tokens: int = 16) -> tuple[str, int, int]:
        """The answer, and how many tokens of the prompt were computed, and cached."""
        body = {"messages": messages, "max_tokens": num_tokens, "temperature": 0}
        url = f"{self._fleet.inference}/v1/chat/completions"
        async with self._fleet.http.post(url, json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
        usage = answer["usage"]
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"] - cached, cached

    async def ask_stored(self, *messages: Message, saves: bool = False) -> tuple[str, int]:
        """The answer with what is stored under a key, and how many tokens were computed."""
        fields = {"temperature": 0, "max_tokens": 16, "cache_key": "road", "stream": False}
        body = fields | {"messages": messages, "save_cache": saves}
        url = f"{self._fleet.inference}/api/v1/generate"
        async with self._fleet.http.post(url, json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200 and not answer.get("warnings"), answer
        usage = answer["usage"]
        return answer["text"], usage["prompt_tokens"] - usage["cached_tokens"]


@pytest.mark.parametrize("name", KINDS)
async def test_what_was_computed_before_is_not_computed_again(
    fleet: Fleet, tmp_path: Path, name: str
) -> None:
    model = write(name, tmp_path / f"{name}.gguf")
    await fleet.start_balancer()
    await fleet.start_agent(model=model, context_size=2048)
    chats = Chats(fleet)
    system = said("system", words(1, 300))
    first = (system, said("user", words(2, 100)))
    text, num_computed, cached = await chats.ask(*first)
    assert cached == 0 and num_computed > 400
    history = (*first, said("assistant", text), said("user", words(3, 100)))
    text, num_new, cached = await chats.ask(*history)
    assert num_new < MESSAGE + 16 + CLOSE, "the next turn"
    _, again, _ = await chats.ask(*history)
    assert again < CLOSE, "the same again"
    _, other, _ = await chats.ask(*history[:-1], said("user", words(4, 100)))
    assert other < MESSAGE + CLOSE, "another last message"
    last = (*history, said("assistant", text), said("user", words(5, 100)))
    await chats.ask(*last)
    _, cut_back, _ = await chats.ask(*first, *last[2:3], said("user", words(6, 100)))
    assert cut_back < MESSAGE + 16 + CLOSE, "a turn less"
    _, session, _ = await chats.ask(system, said("user", words(7, 100)))
    assert session < MESSAGE + CLOSE, "another session with the same system message"
    common = words(8, 500)
    await fleet.hold()
    prompts = [said("user", f"{common} {words(20 + number, 20)}") for number in range(8)]
    async with asyncio.TaskGroup() as asking:
        wave = [asking.create_task(chats.ask(prompt)) for prompt in prompts]
        await fleet.until_in_engines(4)
        await fleet.let_go()
    computed = sorted(each.result()[1] for each in wave)
    assert sum(computed[:7]) < 7 * (40 + CLOSE) and computed[7] > 500, "many at once"


@pytest.mark.parametrize("name", ["gemma3", "qwen35", "mamba2"])
async def test_what_has_left_the_cells_comes_back_from_host_memory_or_disk(
    fleet: Fleet, tmp_path: Path, name: str
) -> None:
    model = write(name, tmp_path / f"{name}.gguf")
    settings = {"model": model, "context_size": 1024, "cache_dir": tmp_path / "stored"}
    await fleet.start_balancer()
    agent = await fleet.start_agent(kv_cells=1024, **settings)
    chats = Chats(fleet)
    history = [said("system", words(9, 120)), said("user", words(10, 60))]
    text, _ = await chats.ask_stored(*history, saves=True)
    later = [*history, said("assistant", text), said("user", words(11, 60))]
    answer, num_new = await chats.ask_stored(*later)
    assert num_new < MESSAGE, "the next turn"
    conversations = [[said("system", words(30 + number, 150))] for number in range(6)]
    for turn in range(3):
        for number, conversation in enumerate(conversations):
            conversation.append(said("user", words(40 + 6 * turn + number, 60)))
            text, num_computed, _ = await chats.ask(*conversation)
            conversation.append(said("assistant", text))
            assert turn == 0 or num_computed < MESSAGE, f"turn {turn} of conversation {number}"
    assert await agent.terminate() == 0

    await fleet.start_agent(**settings)
    other = [*history[:-1], said("user", words(12, 60))]
    for messages, what in ((history, "regenerate"), (other, "branch"), (later, "the next turn")):
        again, num_new = await chats.ask_stored(*messages)
        assert num_new < (CLOSE if what == "regenerate" else MESSAGE), what
    assert again == answer
