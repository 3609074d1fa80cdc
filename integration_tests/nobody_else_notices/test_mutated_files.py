"""Files that somebody changed at random: models, adapters, projectors, pictures and sounds.

Whatever such a file does to the engine process that reads it, the agent's supervisor lives, the
operator is shown an issue or the model is served, engine processes do not start faster than their
backoff, and a stream of another agent goes on. `make search` tries 400 of each kind.
"""

import base64
import io
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from demo.conversations import ADAPTER
from integration_tests.corpus import LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import UNENDING, bystander
from tests.agent.engine.llama.projectors import png, wav, write_llava, write_ultravox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(7200)]

NUM_FILES = int(os.environ.get("FUZZ_FILES", "4"))
"""Of each kind."""
NUM_MEDIA = 10 * NUM_FILES
"""Pictures and sounds, which cost a request each and no start of an engine."""
BESIDE = UNENDING | {"model": MODEL.stem}
"""The other agent's model, or the stream would take the slot of the one that is tried."""
FIRST_PAUSE = 0.5
"""Seconds between the end of an engine process and the start of the next one, at least."""
NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(data: bytes, random: random.Random) -> bytes:
    """`data` with one to eight changes; half of them are in its first 4 KiB, where headers are."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 8))):
        reach = len(changed) if random.random() < 0.5 else min(4096, len(changed))
        at = random.randrange(max(reach, 1))
        match random.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                del changed[at : at + random.choice((1, 8, 100))]
            case 2:
                changed[at:at] = random.randbytes(random.choice((1, 8, 100)))
            case 3:
                changed[at : at + 8] = random.choice(NUMBERS).to_bytes(8, "little")
            case 4:
                changed[at : at + 4] = (random.choice(NUMBERS) % 2**32).to_bytes(4, "little")
            case _ if changed:
                changed[at % len(changed)] ^= 1 << random.randrange(8)
    return bytes(changed)


def each_mutated(kind: str, data: bytes, num: int = NUM_FILES) -> Iterator[tuple[int, bytes]]:
    """The same ones for each run, the first of them cut short."""
    yield 0, data[: min(1000, len(data) // 2)]
    for number in range(1, num):
        yield number, mutated(data, random.Random(f"{kind} {number}"))


class Host:
    """An agent that gets the files, and another one of the same fleet for the bystander."""

    def __init__(self, fleet: Fleet, agent: Daemon, folder: Path) -> None:
        self.fleet = fleet
        self.agent = agent
        self.folder = folder

    async def desire(self, name: str, source: Path, **options: Any) -> None:
        sizes = {"slots": 1, "context_size": 256, "engine": {"host_cache": 0}}
        model = {"name": name, "source": source.as_uri(), "preload": True} | sizes | options
        url = f"{self.fleet.management}/api/v1/desired-state"
        async with self.fleet.http.put(url, json={"models": [model]}) as response:
            assert response.status == 200, await response.text()

    async def outcome(self, name: str) -> str:
        """`loaded` or `failed`, once it is one of them; what failed has an issue."""
        found: dict[str, Any] = {}

        async def is_over() -> bool:
            models = await self.fleet.view("models")
            found.update(next((each for each in models if each["name"] == name), {}))
            if found.get("status") not in ("loaded", "failed"):
                return False
            return found["status"] == "loaded" or bool(found["issues"])

        await until(is_over)
        assert all(each["message"] for each in found["issues"]), found
        return str(found["status"])

    def write(self, data: bytes) -> Path:
        """A file of its own for each: an engine maps the one that it serves."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.gguf"
        path.write_bytes(data)
        return path

    def check(self, since: int) -> None:
        """The supervisor lives, and engine processes since that many starts kept their pauses."""
        assert self.agent.process.returncode is None, self.agent
        starts = [line for line in self.agent.stderr if "the engine process starts" in line][since:]
        times = [datetime.fromisoformat(json.loads(line)["time"]).timestamp() for line in starts]
        pauses = [after - before for before, after in pairwise(times)]
        assert all(pause >= FIRST_PAUSE for pause in pauses), starts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        agent = await fleet.start_agent(model=None, slots=None, context_size=None)
        await fleet.start_agent(name="good", context_size=LONG_CONTEXT)
        yield Host(fleet, agent, tmp_path_factory.mktemp("files"))


async def asked(host: Host, model: str) -> None:
    """A request for it ends, whatever becomes of the engine: with an answer or one error."""
    body = plain_cases()[0].body | {"model": model, "max_tokens": 8, "deadline_ms": 5000}
    end = (await generate(host.fleet.http, host.fleet.inference, body)).end
    assert end["event"] == "done" or end["error"]["message"], end


async def test_models(host: Host) -> None:
    outcomes = []
    async with bystander(host.fleet, BESIDE):
        for number, data in each_mutated("model", MODEL.read_bytes()):
            since = len(host.agent.engine_pids)
            path = host.write(data)
            await host.desire(f"mutated-{number}", path)
            outcomes.append(await host.outcome(f"mutated-{number}"))
            if outcomes[-1] == "loaded":
                await asked(host, f"mutated-{number}")
            host.check(since)
        await host.desire("whole", MODEL)
        assert await host.outcome("whole") == "loaded"
    assert "failed" in outcomes


async def test_adapters(host: Host) -> None:
    outcomes = []
    async with bystander(host.fleet, BESIDE):
        for number, data in each_mutated("adapter", ADAPTER.read_bytes()):
            since = len(host.agent.engine_pids)
            path = host.write(data)
            adapter = {"name": f"mutated-{number}", "source": path.as_uri()}
            await host.desire("adapted", MODEL, adapters=[adapter])
            outcomes.append(await host.outcome(f"adapted:{adapter['name']}"))
            if outcomes[-1] == "loaded":
                await asked(host, f"adapted:mutated-{number}")
            host.check(since)
        await host.desire("whole", MODEL)
        assert await host.outcome("whole") == "loaded"
    assert "failed" in outcomes


@pytest.mark.parametrize("write", [write_llava, write_ultravox])
async def test_projectors(host: Host, write: Callable[[Path], Path]) -> None:
    outcomes = []
    whole = write(host.folder / "whole-projector.gguf").read_bytes()
    async with bystander(host.fleet, BESIDE):
        for number, data in each_mutated(write.__name__, whole):
            since = len(host.agent.engine_pids)
            path = host.write(data)
            await host.desire(f"seeing-{number}", MODEL, projector=path.as_uri())
            outcomes.append(await host.outcome(f"seeing-{number}"))
            host.check(since)
        await host.desire("whole", MODEL)
        assert await host.outcome("whole") == "loaded"
    assert "failed" in outcomes


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(png(90, 60))).save(out, kind)
    return out.getvalue()


async def test_pictures(host: Host) -> None:
    await host.desire("seeing", MODEL, projector=write_llava(host.folder / "eyes.gguf").as_uri())
    assert await host.outcome("seeing") == "loaded"
    kinds = ("png", "jpeg", "webp", "gif")
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{encoded(data)}"}}
        for kind in kinds
        for _, data in each_mutated(kind, picture(kind), NUM_MEDIA // len(kinds))
    ]
    await shown(host, "seeing", parts)


async def test_sounds(host: Host) -> None:
    await host.desire("hearing", MODEL, projector=write_ultravox(host.folder / "ears").as_uri())
    assert await host.outcome("hearing") == "loaded"
    parts = [
        {"type": "input_audio", "input_audio": {"data": encoded(data), "format": "wav"}}
        for _, data in each_mutated("wav", wav(0.5), NUM_MEDIA)
    ]
    await shown(host, "hearing", parts)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def shown(host: Host, model: str, parts: list[dict[str, Any]]) -> None:
    """Each is read or refused, and the engine process that was asked is still the same."""
    statuses = set()
    before = host.agent.engine_pids
    async with bystander(host.fleet, BESIDE):
        for number, part in enumerate(parts):
            content = [{"type": "text", "text": "What is a slot?"}, part]
            messages = [{"role": "user", "content": content}]
            body = {"model": model, "messages": messages, "max_tokens": 2, "stream": False}
            url = f"{host.fleet.inference}/v1/chat/completions"
            async with host.fleet.http.post(url, json=body) as response:
                statuses.add(response.status)
                assert response.status in (200, 400), (number, await response.text())
    assert host.agent.engine_pids == before
    assert 400 in statuses
