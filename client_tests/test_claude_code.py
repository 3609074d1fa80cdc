"""Claude Code, without its terminal interface."""

import pytest

from client_tests.claude_code import claude
from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_question_with_all_tools(desk: Desk) -> None:
    result = (await claude(desk, "What is a llama?", "--output-format", "json")).json
    assert result["is_error"] is False
    assert result["result"]
    [exchange] = desk.arriero.of("/v1/messages")
    assert exchange.status == 200
    assert {"Bash", "Edit", "Read", "Write"} <= {tool["name"] for tool in exchange.json["tools"]}
    assert result["usage"]["input_tokens"] > 10_000
    assert desk.outside.asked == []


async def test_a_question_without_tools(desk: Desk) -> None:
    arguments = ["--tools", "", "--system-prompt", "Be brief.", "--output-format", "json"]
    result = (await claude(desk, "What is a llama?", *arguments)).json
    assert result["is_error"] is False
    [exchange] = desk.arriero.of("/v1/messages")
    assert not exchange.json.get("tools")
    said = [each["delta"].get("text", "") for each in exchange.events if "delta" in each]
    assert result["result"] == "".join(said)


async def test_an_unknown_model_is_told_with_those_that_are_there(desk: Desk) -> None:
    run = await claude(desk, "What is a llama?", "--tools", "", ANTHROPIC_MODEL="no-such")
    assert run.code != 0
    assert "no-such" in run.stdout + run.stderr
