"""The official `ollama` client against a real fleet."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import ollama
import pytest
import pytest_asyncio

from integration_tests.corpus import Case, cases, plain_cases
from integration_tests.daemons import Fleet

MODEL = "arriero-demo"
ONE_BY_ONE = {"temperature": 0}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["process", "file"]}, "count": {"type": "integer"}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[ollama.AsyncClient]:
    client = ollama.AsyncClient(shared_fleet.inference)
    yield client
    await client.close()


def asked(case: Case) -> dict[str, Any]:
    """A case as Ollama's API asks it."""
    body = case.body
    return {
        "model": f"{MODEL}:latest",
        "messages": [own(message) for message in body["messages"]],
        "tools": body.get("tools"),
        "think": body.get("thinking"),
        "options": ONE_BY_ONE,
    }


def own(message: dict[str, Any]) -> dict[str, Any]:
    """A message of OpenAI's as one of Ollama's."""
    told = {"role": message["role"], "content": message.get("content") or ""}
    if calls := message.get("tool_calls"):
        told["tool_calls"] = [
            {
                "function": each["function"]
                | {"arguments": json.loads(each["function"]["arguments"])}
            }
            for each in calls
        ]
    return told


def check_whole(message: ollama.Message, case: Case) -> None:
    assert message.content == case.answer
    assert (message.thinking or "") == case.reasoning
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls or ()] == [
        (call["name"], json.loads(call["arguments"])) for call in case.calls
    ]


CASES = {
    "plain": lambda: plain_cases()[3],
    "thinking": lambda: next(case for case in cases() if case.reasoning and not case.calls),
    "both": lambda: next(case for case in cases() if case.calls and case.reasoning),
    "results": lambda: next(
        case for case in cases() if any(each["role"] == "tool" for each in case.body["messages"])
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_chats(client: ollama.AsyncClient, name: str) -> None:
    case = CASES[name]()
    whole = await client.chat(**asked(case))
    check_whole(whole.message, case)
    assert (whole.done, whole.done_reason) == (True, "stop")
    assert whole.prompt_eval_count
    assert whole.eval_count
    assert whole.total_duration
    parts = [part async for part in await client.chat(**asked(case), stream=True)]
    check_whole(added_up(parts), case)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count


def added_up(parts: list[ollama.ChatResponse]) -> ollama.Message:
    messages = [part.message for part in parts]
    return ollama.Message(
        role="assistant",
        content="".join(message.content or "" for message in messages),
        thinking="".join(message.thinking or "" for message in messages),
        tool_calls=[call for message in messages for call in message.tool_calls or ()],
    )


async def test_a_prompt(client: ollama.AsyncClient) -> None:
    case = plain_cases()[3]
    prompt = case.body["messages"][-1]["content"]
    answer = await client.generate(MODEL, prompt, options=ONE_BY_ONE)
    parts = [
        part async for part in await client.generate(MODEL, prompt, stream=True, options=ONE_BY_ONE)
    ]
    assert answer.response
    assert "".join(part.response or "" for part in parts) == answer.response
    raw = await client.generate(MODEL, "The balancer", raw=True, options={"num_predict": 3})
    assert (raw.done_reason, raw.eval_count) == ("length", 3)
    there = await client.generate(MODEL)
    assert (there.done_reason, there.response) == ("load", "")


async def test_formats_and_log_probs(client: ollama.AsyncClient) -> None:
    question = [{"role": "user", "content": "What is a slot?"}]
    answer = await client.chat(MODEL, question, format=SCHEMA, options=ONE_BY_ONE)
    jsonschema.validate(json.loads(answer.message.content or ""), SCHEMA)
    told = await client.chat(
        MODEL, question, logprobs=True, top_logprobs=2, options={"num_predict": 2}
    )
    assert told.logprobs is not None
    assert len(told.logprobs[0].top_logprobs or ()) == 2


async def test_vectors(client: ollama.AsyncClient) -> None:
    answer = await client.embed(MODEL, ["once", "twice"])
    assert [math.hypot(*vector) for vector in answer.embeddings] == pytest.approx([1, 1], abs=1e-4)
    older = await client.embeddings(MODEL, "once")
    length = math.hypot(*older.embedding)
    assert [each / length for each in older.embedding] == pytest.approx(
        answer.embeddings[0], abs=1e-3
    )


async def test_models(client: ollama.AsyncClient) -> None:
    assert [model.model for model in (await client.list()).models] == [MODEL]
    assert [model.name for model in (await client.ps()).models] == [MODEL]
    shown = await client.show(MODEL)
    assert shown.template
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo
    assert shown.modelinfo["general.parameter_count"] > 0


async def test_errors(client: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError, match="not found") as missing:
        await client.chat("nobody", [{"role": "user", "content": "x"}])
    with pytest.raises(ollama.ResponseError, match="desired state") as unsupported:
        await client.pull(MODEL)
    with pytest.raises(ollama.ResponseError, match="images") as refused:
        await client.generate(MODEL, "x", images=["aGVsbG8="])
    errors = (missing.value, unsupported.value, refused.value)
    assert [error.status_code for error in errors] == [404, 501, 400]
