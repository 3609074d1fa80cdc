"""Codex, without its terminal interface."""

import pytest

from client_tests.codex import codex
from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_question(desk: Desk) -> None:
    events = (await codex(desk, "What is a llama?")).json_lines
    [usage] = [each["usage"] for each in events if each["type"] == "turn.completed"]
    assert usage["input_tokens"] > 10_000
    [exchange] = desk.arriero.of("/v1/responses")
    assert exchange.status == 200
    assert {"namespace", "web_search"} <= {tool["type"] for tool in exchange.json["tools"]}
    items = [each["item"] for each in events if each["type"] == "item.completed"]
    [message] = [item["text"] for item in items if item["type"] == "agent_message"]
    said = [each for each in exchange.events if each["type"] == "response.output_text.delta"]
    assert message == "".join(each["delta"] for each in said)
    own = ("github.com:443", "chatgpt.com:443")
    assert all(each.endswith(own) for each in desk.outside.asked), desk.outside.asked
