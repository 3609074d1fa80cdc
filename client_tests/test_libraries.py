"""Libraries that programs are made with: each asks in its own way, and tells what came.

A script tells some of: `answer` and `streamed` to one question (`said` where the library adds words
of its own to it), `fact` (a typed answer), `calls` (of a tool that has to be called), `best` (of
documents).
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import gguf
import pytest
import pytest_asyncio

from client_tests.program import ROOT, Desk, programs
from client_tests.recorder import Recorder
from integration_tests.daemons import Fleet
from tests.agent.engine.llama.encoders import write_encoder

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTS = ROOT / "client_tests" / "scripts"
ANSWER = "A slot is a place for one running sequence"
PYTHON = ("litellm", "instructor", "pydantic-ai", "outlines", "smolagents", "haystack", "strands")
AGENTS = ("google-adk", "claude-agent-sdk", "crewai")
NODE = ("ai-sdk", "langchain-js")


def check(told: dict[str, Any]) -> None:
    """What every library tells, as far as it does."""
    assert told["said"] if "said" in told else told["answer"].startswith(ANSWER)
    if "streamed" in told:
        assert told["streamed"] == told["answer"]
    if "fact" in told:
        assert {*told["fact"]} == {"subject", "is_true"}
    if "turns" in told:
        assert told["turns"] == ["stop", "stop", "tool-calls", "stop"]
    for call in told.get("calls", ()):
        assert call["name"] == "look"
        assert {*call["arguments"]} <= {"place"}


@pytest.mark.parametrize("client", [*PYTHON, *AGENTS])
async def test_in_python(desk: Desk, client: str) -> None:
    script = SCRIPTS / f"ask_with_{client.replace('-', '_')}.py"
    run = await desk.run(client, "python", str(script), desk.arriero.url)
    check(run.json_lines[-1])
    assert {each.status for each in desk.arriero.exchanges} == {200}


@pytest.mark.parametrize("client", NODE)
async def test_in_node(desk: Desk, client: str) -> None:
    """Scripts find packages beside themselves."""
    node = shutil.which("node")
    assert node is not None
    (desk.work / "node_modules").symlink_to(programs(client).parent)
    script = desk.work / "ask.mjs"
    shutil.copy(SCRIPTS / f"ask_with_{client.replace('-', '_')}.mjs", script)
    run = await desk.run(client, node, str(script), desk.arriero.url)
    check(run.json_lines[-1])
    assert {each.status for each in desk.arriero.exchanges} == {200}
    refers = any(b"item_reference" in each.body for each in desk.arriero.exchanges)
    assert refers == (client == "ai-sdk")


# ---- Cohere's SDK, which ranks


@pytest_asyncio.fixture(loop_scope="module")
async def ranking(tmp_path: Path) -> AsyncIterator[Recorder]:
    """A fleet with a model that ranks."""
    path = write_encoder(tmp_path / "ranker.gguf", pooling=gguf.PoolingType.RANK)
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(model=path)
        recorder = Recorder(fleet.inference)
        await recorder.start()
        stack.push_async_callback(recorder.close)
        yield recorder


async def test_coheres(desk: Desk, ranking: Recorder) -> None:
    script = str(SCRIPTS / "ask_with_cohere.py")
    told = (await desk.run("cohere", "python", script, ranking.url)).json
    assert sorted(told["best"]) == [0, 1, 2]
    assert told["refused"] == 404
    assert [each.path for each in ranking.exchanges] == ["/v2/rerank", "/v1/rerank", "/v2/rerank"]
