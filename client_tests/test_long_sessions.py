"""Coding sessions of ten turns: each prompt after the first is cached, but for its end.

The calls are forced (`forced.py`); the client carries them out and sends the results.
"""

import json

import pytest

from client_tests.claude_code import claude
from client_tests.codex import codex
from client_tests.forced import messages_call, responses_call
from client_tests.program import Desk
from client_tests.recorder import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_CALLS = 9
LEAST_CACHED = 0.9
"""Of each turn's prompt."""


def check_reuse(prompts: list[tuple[int, int]]) -> None:
    """`prompts`: tokens and cached tokens of each turn."""
    shares = [cached / tokens for tokens, cached in prompts]
    assert len(prompts) == NUM_CALLS + 1
    assert all(share >= LEAST_CACHED for share in shares[1:]), prompts


def of_messages(exchange: Exchange) -> tuple[int, int]:
    [usage] = [each["usage"] for each in exchange.events if each["type"] == "message_delta"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached + usage["cache_creation_input_tokens"], cached


def of_responses(exchange: Exchange) -> tuple[int, int]:
    usage = exchange.events[-1]["response"]["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


async def test_claude_code(desk: Desk) -> None:
    path = str(desk.work / "notes.md")
    desk.arriero.edit = messages_call("Read", {"file_path": path}, NUM_CALLS)
    run = await claude(desk, "Read the notes again and again.", "--output-format", "json")
    exchanges = desk.arriero.of("/v1/messages")
    assert [each.status for each in exchanges] == [200] * len(exchanges), run
    results = [
        block
        for message in exchanges[-1].json["messages"]
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert len(results) == NUM_CALLS
    assert "A llama carries loads" in json.dumps(results[0])
    check_reuse([of_messages(each) for each in exchanges])
    assert run.json["num_turns"] == NUM_CALLS + 1


async def test_codex(desk: Desk) -> None:
    desk.arriero.edit = responses_call("exec_command", {"cmd": "cat notes.md"}, NUM_CALLS)
    run = await codex(desk, "Read the notes again and again.")
    exchanges = desk.arriero.of("/v1/responses")
    assert [each.status for each in exchanges] == [200] * len(exchanges), run
    items = exchanges[-1].json["input"]
    results = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert len(results) == NUM_CALLS
    assert all("A llama carries loads" in result for result in results)
    check_reuse([of_responses(each) for each in exchanges])
