"""The official `openai` client for Node against a real fleet."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import cases, plain_cases
from integration_tests.daemons import DEADLINE
from integration_tests.installed import installed, node_clients
from integration_tests.shared_fleets import SharedFleets

MODEL = "arriero-demo"
SCRIPT = Path(__file__).parent / "node" / "openai_client.mjs"

PLAIN = plain_cases()[3]
CALLING = next(case for case in cases() if case.calls and not case.reasoning)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install Node
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def told(fleets: SharedFleets, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the client made of the fleet's answers; all of them are asked for in one process."""
    fleet = await fleets.with_agent(context_size=2048)
    node = await asyncio.to_thread(installed, "node")
    clients = await asyncio.to_thread(node_clients)
    folder = tmp_path_factory.mktemp("node")
    # A module's imports are looked for beside it.
    (folder / "node_modules").symlink_to(clients / "node_modules")
    script = shutil.copy(SCRIPT, folder)
    questions = {
        "model": MODEL,
        "chat": {"model": MODEL, **PLAIN.body},
        "tools": {"model": MODEL, **CALLING.body},
    }
    process = await asyncio.create_subprocess_exec(
        node,
        script,
        f"{fleet.inference}/v1",
        json.dumps(questions),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


async def test_models(told: Any) -> None:
    assert told["models"] == [MODEL]


async def test_chat(told: Any) -> None:
    choice = told["chat"]["choices"][0]
    assert choice["message"]["content"] == PLAIN.answer
    assert choice["finish_reason"] == "stop"


async def test_streamed_chat(told: Any) -> None:
    streamed = told["streamed"]
    assert streamed["choice"]["message"]["content"] == PLAIN.answer == streamed["joined"]
    assert streamed["choice"]["finish_reason"] == "stop"
    counts = ("prompt_tokens", "completion_tokens")
    assert [streamed["usage"][name] for name in counts] == [
        told["chat"]["usage"][name] for name in counts
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls(told: Any, streamed: bool) -> None:
    choice = told["streamedCall"]["choice"] if streamed else told["call"]["choices"][0]
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    calls = tuple({"name": each["name"], "arguments": each["arguments"]} for each in functions)
    assert calls == CALLING.calls
    assert choice["finish_reason"] == "tool_calls"


async def test_embeddings(told: Any) -> None:
    """Without a format the client asks for base64 and decodes it."""
    decoded, plain = told["embeddings"]["decoded"], told["embeddings"]["plain"]
    assert [each["index"] for each in plain] == [0, 1]
    for ours, theirs in zip(decoded, plain, strict=True):
        assert ours["embedding"] == pytest.approx(theirs["embedding"], abs=1e-6)
        assert sum(value * value for value in theirs["embedding"]) == pytest.approx(1, abs=1e-4)


async def test_responses(told: Any) -> None:
    response = told["response"]
    assert response["output_text"] == PLAIN.answer
    streamed = told["streamedResponse"]
    assert streamed["types"][0] == "response.created"
    assert streamed["types"][-1] == "response.completed"
    assert streamed["response"]["output"][0]["content"][0]["text"] == PLAIN.answer


async def test_a_refusal(told: Any) -> None:
    assert told["refusal"] == {"name": "BadRequestError", "status": 400, "param": "n"}
