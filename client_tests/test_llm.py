"""llm, a command line for models."""

import json

import pytest

from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


def settings(desk: Desk) -> dict[str, str]:
    """Writes llm's list of models; returns its environment."""
    model = {
        "model_id": "demo",
        "model_name": "arriero-demo",
        "api_base": f"{desk.arriero.url}/v1",
        "supports_tools": True,
        "supports_schema": True,
    }
    desk.write("llm/extra-openai-models.yaml", json.dumps([model]))  # JSON is YAML, too.
    return {"LLM_USER_PATH": str(desk.home / "llm"), "OPENAI_API_KEY": "unused"}


async def test_a_conversation_a_schema_and_a_tool(desk: Desk) -> None:
    env = settings(desk)
    asked = ["-m", "demo", "-o", "temperature", "0"]
    first = await desk.run("llm", "llm", *asked, "What is a slot?", env=env)
    assert first.ok().stdout.startswith("A slot is a place for one running sequence")
    second = await desk.run("llm", "llm", *asked, "-c", "--no-stream", "And an agent?", env=env)
    assert second.ok().stdout.strip()
    schema = ["--schema", "slots int", "-o", "max_tokens", "200"]
    third = await desk.run("llm", "llm", *asked, *schema, "How many slots?", env=env)
    assert isinstance(third.json["slots"], int)
    fourth = await desk.run("llm", "llm", *asked, "-T", "llm_time", "What is a slot?", env=env)
    assert fourth.ok().stdout.strip()
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert {each.status for each in exchanges} == {200}
    roles = [message["role"] for message in exchanges[1].json["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert exchanges[3].json["tools"][0]["function"]["name"] == "llm_time"
    assert desk.outside.asked == []
