"""`arriero …` against the real daemons."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import pytest_asyncio

from arriero.agent.models.remote_header import FIRST_PIECE
from integration_tests.corpus import LONG_CONTEXT, UNENDING
from integration_tests.daemons import DEADLINE, MODEL, Fleet, started_fleet, until
from tests.agent.models.file_server import Served, file_server

ARRIERO = str(Path(sys.executable).with_name("arriero"))

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting() -> AsyncIterator[Fleet]:
    """With room for a stream that outlasts a few commands."""
    async with started_fleet(context_size=LONG_CONTEXT) as fleet:
        yield fleet


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Commands obey SIGINT, as on a terminal, also where whoever runs the tests ignores it.

    A program inherits that a signal is ignored, and not that it has a handler.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def terminal() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """What a person sees, and what a command writes to."""
    parent, child = pty.openpty()
    with (
        os.fdopen(parent, "rb", 0) as seen,
        os.fdopen(child, "wb", buffering=0) as screen,
    ):
        yield seen, screen


@asynccontextmanager
async def started(
    fleet: Fleet, *argv: str, **more: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command, which is killed by leaving unless it has ended."""
    environ = os.environ | {
        "ARRIERO_URL": fleet.inference,
        "ARRIERO_MANAGEMENT": fleet.management,
        "COLUMNS": "160",
    }
    pipe = asyncio.subprocess.PIPE
    pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe} | more
    process = await asyncio.create_subprocess_exec(ARRIERO, *argv, env=environ, **pipes)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(fleet: Fleet, *argv: str, code: int = 0) -> str:
    async with started(fleet, *argv) as process:
        out, err = await asyncio.wait_for(process.communicate(b""), DEADLINE)
    assert process.returncode == code, err.decode()
    return out.decode()


async def test_looking(lasting: Fleet) -> None:
    async with lasting.http.post(f"{lasting.inference}/api/v1/generate", json=UNENDING) as response:
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
    await run(lasting, "requests", "cancel", "nobody", code=2)


async def test_where_a_model_fits_before_it_is_downloaded(lasting: Fleet, tmp_path: Path) -> None:
    """One agent is asked over its engine's link, and one without a model over its supervisor's."""
    models = tmp_path / "models"
    data = MODEL.read_bytes() + bytes(4 * FIRST_PIECE)  # its header is most of the demo model
    async with AsyncExitStack() as stack:
        server = stack.enter_context(file_server())
        source = server.serve("/m.gguf", Served(data))
        await lasting.guest(stack).start_agent(
            name="narrow", model=None, slots=3, fit_target="1000TiB", models_dir=models
        )
        found = json.loads(await run(lasting, "models", "fit", source, "--json"))
        table = await run(lasting, "models", "fit", source, "--context-size", "512")
        gone = await run(lasting, "models", "fit", server.url + "/none.gguf")
        asked = [each for each in server.asked if each.path == "/m.gguf"]
    fits = {each["name"]: each["fit"] for each in found["agents"]}
    assert fits["agent-1"]["missing"] == 0 < fits["narrow"]["missing"]
    assert {each["file_bytes"] for each in fits.values()} == {len(data)}
    assert (fits["narrow"]["slots"], fits["narrow"]["cells"]) == (3, 1024)
    rows = {row.split()[0]: row for row in table.splitlines()}
    assert re.search(r"^agent-1 +yes +\d+ layers in memory .*, 4 slots of 512\b", rows["agent-1"])
    assert re.search(r"^narrow +no +.* too little, even for \d+ layers", rows["narrow"])
    assert gone.count("status 404") == 2
    assert all(each.headers["range"].startswith("bytes=") for each in asked)
    assert not list(models.glob("**/*.gguf*")), "nothing is downloaded"


@pytest.mark.usefixtures("interruptible")
async def test_a_live_table_and_ctrl_c(lasting: Fleet) -> None:
    with terminal() as (seen, screen):
        async with started(lasting, "status", stdout=screen, stderr=screen) as process:
            text = b""
            while b"agent-1" not in text:
                text += await asyncio.wait_for(asyncio.to_thread(seen.read, 65536), DEADLINE)
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), DEADLINE) == 130


async def test_a_batch_that_is_killed_goes_on(lasting: Fleet, tmp_path: Path) -> None:
    """Each line is answered once, however often the program is killed."""
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [
        json.dumps({"prompt": f"{n}:", "max_tokens": 24, "ignore_eos": True}) for n in range(60)
    ]
    source.write_text("\n".join([*lines, "{wrong"]))
    await lasting.hold()
    for least in (5, 20):

        async def has_results() -> bool:
            if target.exists() and target.read_bytes().count(b"\n") >= least:  # noqa: B023
                return True
            await lasting.agents[0].pace.hand_out(4)
            return False

        async with started(lasting, "batch", str(source), str(target)):
            await until(has_results)
        await lasting.hold()
        assert target.read_bytes().count(b"\n") < 61
    await lasting.let_go()
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
