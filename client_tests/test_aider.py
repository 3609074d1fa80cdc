"""aider, without its terminal interface."""

import pytest

from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

FLAGS = [
    "--model=openai/arriero-demo",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--no-gitignore",
    "--no-pretty",
    "--yes-always",
]


async def test_a_question_about_a_file(desk: Desk) -> None:
    env = {"OPENAI_API_BASE": f"{desk.arriero.url}/v1", "OPENAI_API_KEY": "unused"}
    arguments = [*FLAGS, "--message", "What does a llama carry?", "notes.md"]
    run = await desk.run("aider", "aider", *arguments, env=env)
    exchanges = desk.arriero.of("/v1/chat/completions")
    assert exchanges
    assert {each.status for each in exchanges} == {200}
    assert "A llama carries loads" in str(exchanges[0].json["messages"])
    deltas = [choice["delta"] for each in exchanges[0].events for choice in each["choices"]]
    said = "".join(delta.get("content") or "" for delta in deltas)
    assert said.split()
    assert "".join(said.split()) in "".join(run.ok().stdout.split())  # It wraps lines.
