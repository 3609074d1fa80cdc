"""Forced calls with models whose chat template shows no known call format."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from integration_tests.daemons import DEADLINE, MODEL, Fleet

CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{{ '<|im_start|>assistant\\n' }}"
)
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Quito"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
MESSAGES: list[Any] = [{"role": "user", "content": "What is a slot?"}]


pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def client(bare_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{bare_fleet.inference}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


async def test_with_a_bare_template(
    bare_fleet: Fleet, client: openai.AsyncOpenAI, tmp_path: Path
) -> None:
    path = tmp_path / "bare.jinja"
    path.write_text(CHATML)
    await bare_fleet.start_agent(chat_template=path)
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in (named, "required"):
        answer = await client.chat.completions.create(
            model="arriero-demo",
            messages=MESSAGES,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            temperature=0,
        )
        [choice_made] = answer.choices
        assert choice_made.finish_reason == "tool_calls"
        assert choice_made.message.content is None
        [call] = choice_made.message.tool_calls or ()
        arguments = json.loads(call.function.arguments)
        if choice == named or call.function.name == "weather":
            assert call.function.name == "weather"
            assert arguments["city"] in ("Oslo", "Quito")
            assert arguments["days"] in (1, 2)
        else:
            assert (call.function.name, arguments) == ("now", {})


async def test_without_a_template(
    bare_fleet: Fleet, client: openai.AsyncOpenAI, tmp_path: Path
) -> None:
    path = tmp_path / "without-template.gguf"
    key = b"tokenizer.chat_template"
    path.write_bytes(MODEL.read_bytes().replace(key, key.upper()))
    await bare_fleet.start_agent(model=path)
    with pytest.raises(openai.InternalServerError, match="the model has no chat template"):
        await client.chat.completions.create(
            model="without-template", messages=MESSAGES, tools=TOOLS, tool_choice="required"
        )
    answer = await client.completions.create(
        model="without-template", prompt="A slot is", max_tokens=4, temperature=0
    )
    assert answer.choices[0].text
