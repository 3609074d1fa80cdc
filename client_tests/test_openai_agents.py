"""OpenAI's Agents SDK: a tool is called and its result answered, with both of OpenAI's APIs."""

import pytest

from client_tests.program import ROOT, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = str(ROOT / "client_tests" / "scripts" / "ask_with_agents.py")


async def test_an_agent_with_a_tool(desk: Desk) -> None:
    question = "Which agents are connected right now?"
    run = await desk.run("openai-agents", "python", SCRIPT, f"{desk.arriero.url}/v1", question)
    for name, path in (("chat", "/v1/chat/completions"), ("responses", "/v1/responses")):
        told = run.json[name]
        assert told["items"] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
        assert told["answer"] == told["streamed"] != ""
        assert told["num_events"] > 10
        assert isinstance(told["typed"]["slots"], int)
        assert [each.status for each in desk.arriero.of(path)] == [200] * 5
    assert desk.outside.asked == []
