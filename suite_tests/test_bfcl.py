"""bfcl-eval: cases of the Berkeley Function-Calling Leaderboard, here and at llama-server."""

import asyncio
import json
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bench import peer
from bench.sides import Load, start_theirs
from client_tests.recorder import Recorder
from integration_tests.daemons import Fleet
from integration_tests.installed import real_model
from suite_tests.conftest import CONTEXT_SIZE
from suite_tests.harness import judge, run

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not peer.server_path().exists(), reason="needs `make bench-setup`"),
]

log = logging.getLogger(__name__)

ENTRY = "openbmb/MiniCPM-SALA-FC"
"""The suite's one model that it asks for at any server with OpenAI's API; SmolLM2's alias here."""

CASES = {"simple_python": 20, "multiple": 10, "irrelevance": 10}
"""How many of each category, the first ones."""

IRRELEVANT = "irrelevance"
"""The category whose questions no tool answers. In the others a call is required, since a model as
small as this one makes none by itself."""


async def test_answers_are_at_least_as_right_as_llama_servers(
    serving: Fleet, tmp_path: Path
) -> None:
    ours = await num_right(tmp_path / "arriero", serving.inference)
    async with AsyncExitStack() as stack:
        load = Load(real_model("smollm2"), slots=4, context_size=CONTEXT_SIZE, threads=2)
        side = await start_theirs(stack, load, options=["--jinja"])
        theirs = await num_right(tmp_path / "llama-server", side.url)
    log.info("right of %s: %s here, %s at llama-server", CASES, ours, theirs)
    judge({each: None if ours[each] >= theirs[each] else f"{ours}, {theirs}" for each in CASES}, {})


MAX_TOKENS = 120
"""The suite sets no bound, and a small model that calls nothing talks until its context is full."""


def bounded(_path: str, body: dict[str, Any]) -> dict[str, Any]:
    return body | {"max_tokens": MAX_TOKENS}


def forced(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return bounded(path, body) | {"tool_choice": "required"}


async def num_right(folder: Path, url: str) -> dict[str, int]:
    """Runs the cases at the server at `url`; returns how many of each category are right."""
    front = Recorder(url)
    await front.start()
    try:
        for name in CASES:
            front.edit = bounded if name == IRRELEVANT else forced
            await run_cases(folder / name, front.url, name)
    finally:
        await front.close()
    assert {each.status for each in front.exchanges} == {200}
    return {name: await asyncio.to_thread(score, folder / name, name) for name in CASES}


async def run_cases(folder: Path, url: str, name: str) -> None:
    """Let the suite ask the server at `url`, and judge the answers; its files are in `folder`."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    wanted = folder / "test_case_ids_to_generate.json"
    ids = {name: [f"{name}_{each}" for each in range(CASES[name])]}
    await asyncio.to_thread(wanted.write_text, json.dumps(ids))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "BFCL_PROJECT_ROOT": str(folder)}
    env |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"}
    for arguments in (
        ("generate", "--model", ENTRY, "--run-ids", "--num-threads", "4"),
        ("evaluate", "--model", ENTRY, "--test-category", name, "--partial-eval"),
    ):
        code, output = await run("bfcl", "bfcl", *arguments, env=env)
        assert code == 0, output


def score(folder: Path, name: str) -> int:
    """How many cases of the category are right, as the suite says."""
    [file] = folder.glob(f"score/**/BFCL_*_{name}_score.json")
    found = json.loads(file.read_text().splitlines()[0])
    assert found["total_count"] == CASES[name]
    right: int = found["correct_count"]
    return right
