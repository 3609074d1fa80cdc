"""Coding agents in a terminal, without their interfaces: Qwen Code and Continue."""

import json

import pytest

from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_qwen_code(desk: Desk) -> None:
    env = {
        "OPENAI_BASE_URL": f"{desk.arriero.url}/v1",
        "OPENAI_API_KEY": "unused",
        "OPENAI_MODEL": "arriero-demo",
    }
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
        "tools": {"core": ["read_file", "list_directory"]},
        "model": {"maxSessionTurns": 1, "generationConfig": {"samplingParams": {"max_tokens": 64}}},
    }
    desk.write(".qwen/settings.json", json.dumps(settings))
    run = await desk.run("qwen-code", "qwen", "-p", "What is a llama?", env=env)
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert exchanges, run
    assert {each.status for each in exchanges} == {200}
    assert any(each.json.get("tools") for each in exchanges)


CONTINUE = """
name: Arriero
version: 0.0.1
schema: v1
models:
  - name: demo
    provider: openai
    model: arriero-demo
    apiBase: {url}/v1
    apiKey: unused
    roles: [chat]
    defaultCompletionOptions: {{maxTokens: 64}}
"""


async def test_continue(desk: Desk) -> None:
    desk.write("config.yaml", CONTINUE.format(url=desk.arriero.url))
    config = str(desk.home / "config.yaml")
    env = {"CONTINUE_TELEMETRY_ENABLED": "0"}
    run = await desk.run("continue", "cn", "--config", config, "-p", "What is a llama?", env=env)
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert exchanges, run
    assert {each.status for each in exchanges} == {200}
