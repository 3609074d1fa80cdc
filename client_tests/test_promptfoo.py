"""promptfoo, which compares answers: by OpenAI's API, Ollama's and llama-server's own."""

import json

import pytest

from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}
PATHS = {"/v1/chat/completions", "/api/chat", "/completion"}


def config(url: str) -> str:
    chat = {
        "id": "openai:chat:arriero-demo",
        "config": {"apiBaseUrl": f"{url}/v1", "apiKey": "unused", "max_tokens": 40},
    }
    ollama = {"id": "ollama:chat:arriero-demo", "config": {"num_predict": 40}}
    llama = {"id": "llama", "config": {"n_predict": 40, "temperature": 0}}
    return json.dumps(
        {
            "prompts": ["What is a {{thing}}?"],
            "providers": [chat, ollama, llama],
            "tests": [{"vars": {"thing": "slot"}, "assert": [{"type": "regex", "value": "\\w"}]}],
        }
    )


async def test_an_evaluation(desk: Desk) -> None:
    desk.write("promptfooconfig.json", config(desk.arriero.url))
    result = desk.home / "result.json"
    env = SETTINGS | {
        "OLLAMA_BASE_URL": desk.arriero.url,
        "LLAMA_BASE_URL": desk.arriero.url,
        "PROMPTFOO_CONFIG_DIR": str(desk.home / "promptfoo"),
    }
    arguments = ("eval", "--no-cache", "--no-progress-bar", "--no-table", "-j", "1")
    files = ("-c", str(desk.home / "promptfooconfig.json"), "-o", str(result))
    run = await desk.run("promptfoo", "promptfoo", *arguments, *files, env=env)
    assert {each.path for each in desk.arriero.exchanges} >= PATHS, run
    assert {each.status for each in desk.arriero.exchanges} == {200}, run
    stats = json.loads(result.read_text())["results"]["stats"]
    assert (stats["successes"], stats["failures"], stats["errors"]) == (3, 0, 0), run
