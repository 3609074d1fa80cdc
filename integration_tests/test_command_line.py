"""`arriero …` against the real daemons."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, LONG_CONTEXT
from integration_tests.daemons import Fleet, started_fleet, until

ARRIERO = str(Path(sys.executable).with_name("arriero"))

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting() -> AsyncIterator[Fleet]:
    """With room for a stream that outlasts a few commands."""
    async with started_fleet(context_size=LONG_CONTEXT) as fleet:
        yield fleet


async def start(fleet: Fleet, *argv: str, **more: Any) -> asyncio.subprocess.Process:
    environ = os.environ | {
        "ARRIERO_URL": fleet.inference,
        "ARRIERO_MANAGEMENT": fleet.management,
        "COLUMNS": "160",
    }
    pipe = asyncio.subprocess.PIPE
    pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe} | more
    return await asyncio.create_subprocess_exec(ARRIERO, *argv, env=environ, **pipes)


async def run(fleet: Fleet, *argv: str, code: int = 0) -> str:
    process = await start(fleet, *argv)
    out, err = await asyncio.wait_for(process.communicate(b""), 30)
    assert process.returncode == code, err.decode()
    return out.decode()


async def test_looking(lasting: Fleet) -> None:
    async with lasting.http.post(f"{lasting.inference}/api/v1/generate", json=ENDLESS) as response:
        await response.content.readline()
        id = response.headers["X-Request-Id"]
        assert "1 of 4 slots busy" in await run(lasting, "status", "--once")
        [listed] = json.loads(await run(lasting, "requests", "--json"))
        assert (listed["id"], listed["state"]) == (id, "streaming")
        await run(lasting, "requests", "cancel", id)
        assert b'"cancelled"' in (await response.read()).splitlines()[-1]
    [agent] = json.loads(await run(lasting, "agents", "--json"))
    assert agent["state"] == "ready"
    findings = json.loads(await run(lasting, "doctor", "--json"))
    assert {each["verdict"] for each in findings} <= {"good", "warning"}
    words = await run(lasting, "generate", "What is a slot?", "--temperature", "0")
    assert "slot" in words
    await run(lasting, "requests", "cancel", "nobody", code=1)


async def test_a_live_table_and_ctrl_c(lasting: Fleet) -> None:
    parent, child = pty.openpty()
    process = await start(lasting, "status", stdout=child, stderr=child)
    os.close(child)
    seen = b""
    loop = asyncio.get_running_loop()
    while b"agent-1" not in seen:
        seen += await asyncio.wait_for(loop.run_in_executor(None, os.read, parent, 65536), 20)
    process.send_signal(2)
    assert await asyncio.wait_for(process.wait(), 10) == 130
    os.close(parent)


async def test_a_batch_that_is_killed_goes_on(lasting: Fleet, tmp_path: Path) -> None:
    """Each line is answered once, however often the program is killed."""
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [
        json.dumps({"prompt": f"{n}:", "max_tokens": 24, "ignore_eos": True}) for n in range(60)
    ]
    source.write_text("\n".join([*lines, "{wrong"]))
    for least in (5, 20):
        process = await start(lasting, "batch", str(source), str(target))

        async def has_results() -> bool:
            return target.exists() and target.read_bytes().count(b"\n") >= least  # noqa: B023

        await until(has_results, deadline=20)
        process.kill()
        await process.communicate()
        assert target.read_bytes().count(b"\n") < 61
    await run(lasting, "batch", str(source), str(target), code=1)
    results = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(each["line"] for each in results) == list(range(1, 62))
    failed = [each["line"] for each in results if "error" in each]
    assert failed == [61]
    assert {
        each["answer"]["usage"]["completion_tokens"] for each in results if "answer" in each
    } == {24}
    await lasting.until_idle()


async def test_a_benchmark(lasting: Fleet) -> None:
    argv = ["bench", "--concurrency", "1,4", "--requests", "4", "--max-tokens", "4", "--json"]
    levels = json.loads(await run(lasting, *argv))["levels"]
    assert [(each["concurrency"], each["failed"]) for each in levels] == [(1, 0), (4, 0)]
    assert all(each["first_p50"] > 0 for each in levels)
