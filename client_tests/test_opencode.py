"""opencode, without its terminal interface."""

import json

import pytest

from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}


def config(url: str) -> str:
    model = {"name": "Demo", "limit": {"context": 32_768, "output": 64}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1"},
        "models": {"arriero-demo": model},
    }
    settings = {
        "model": "arriero/arriero-demo",
        "enabled_providers": ["arriero"],
        "provider": {"arriero": provider},
    }
    return json.dumps(settings)


async def test_a_question(desk: Desk) -> None:
    desk.write(".config/opencode/opencode.json", config(desk.arriero.url))
    run = await desk.run("opencode", "opencode", "run", "What is a llama?", env=SETTINGS)
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert [each.status for each in exchanges] == [200] * len(exchanges)
    [asked] = [each for each in exchanges if each.json.get("tools")]
    assert {"read", "edit", "bash"} <= {tool["function"]["name"] for tool in asked.json["tools"]}
    deltas = [choice["delta"] for each in asked.events for choice in each["choices"]]
    said = "".join(delta.get("content") or "" for delta in deltas)
    assert said.strip()
    assert said.strip() in run.ok().stdout
    assert set(desk.outside.asked) <= {"registry.npmjs.org:443"}
