"""Why a model cannot be served: each reason provoked for real, shown to operators, and mended."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arriero.client import Client
from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import MODEL, Fleet, until
from tests.agent.models.file_server import Served
from tests.agent.models.small_disk import NoNamespaces, fill, small_disk
from tests.agent.models.small_hub import SmallHub, sha256, small_hub

pytestmark = pytest.mark.asyncio(loop_scope="module")

DATA = MODEL.read_bytes()
DISK = "size=64m"
"""Room for a copy of the demo model for each test, which nothing evicts."""


@dataclass
class Host:
    """A fleet of one agent without a model, whose models folder is on a small disk of its own."""

    fleet: Fleet
    hub: SmallHub
    disk: Path

    async def wish(self, source: str, **options: Any) -> None:
        """Wish for one small model."""
        size = {"slots": 1, "context_size": 256, "engine": {"host_cache": 0}}
        state = {"models": [{"name": "demo", "source": source} | size | options]}
        url = f"{self.fleet.management}/api/v1/desired-state"
        async with self.fleet.http.put(url, json=state) as response:
            assert response.status == 200, await response.text()

    async def try_again(self) -> None:
        """As an operator who has mended the cause, and does not want to wait."""
        [agent] = await self.fleet.view("agents")
        url = f"{self.fleet.management}/api/v1/agents/{agent['id']}/reload"
        async with self.fleet.http.post(url, json={}) as response:
            assert response.status == 200, await response.text()

    async def issue(self, code: str) -> dict[str, str]:
        """The agent's issue, once it has this one."""
        found: list[dict[str, str]] = []

        async def shown() -> bool:
            # None is connected for a moment where its engine gives way to its supervisor.
            agents = await self.fleet.view("agents")
            found[:] = [
                each for agent in agents for each in agent["issues"] if each["code"] == code
            ]
            return bool(found)

        await until(shown)
        assert found[0]["message"] and found[0]["hint"]
        return found[0]

    async def until_failed(self) -> None:
        """Waits until the balancer says so of the model."""

        async def has_failed() -> bool:
            [model] = await self.fleet.view("models")
            return bool(model["status"] == "failed")

        await until(has_failed)
        async with Client(self.fleet.inference, management=self.fleet.management) as client:
            snapshot = await anext(client.management.events())
        assert ("model", "demo") in [
            (each["kind"], each["name"]) for each in snapshot.data["troubles"]
        ]

    async def serves(self) -> None:
        """Waits until what is wished is loaded, without an issue, and a request is answered."""

        async def mended() -> bool:
            agents = await self.fleet.view("agents")
            models = await self.fleet.view("models")
            is_well = [(each["state"], each["issues"]) for each in agents] == [("ready", [])]
            # One that goes on with the model before is well, too, until the next one has failed.
            return is_well and [each["status"] for each in models] == ["loaded"]

        await until(mended)
        case = plain_cases()[0]
        answer = await generate(
            self.fleet.http, self.fleet.inference, case.body | {"max_tokens": 4}
        )
        assert case.answer.startswith(answer.text), answer.end


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    async with AsyncExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(folder / "disk", DISK))
        except NoNamespaces as error:
            pytest.skip(f"no file system can be mounted: {error}")
        hub = stack.enter_context(small_hub())
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub"), "HF_TOKEN": ""}
        await fleet.start_agent(
            model=None, slots=None, context_size=None, models_dir=disk / "models", env=environment
        )
        yield Host(fleet, hub, disk)


async def test_not_found(host: Host) -> None:
    """The first of all: an agent that has a model goes on with it, and nothing is refused."""
    await host.wish(host.hub.server.url + "/later.gguf")
    assert "404" in (await host.issue("not_found"))["message"]
    await host.until_failed()
    url = f"{host.fleet.inference}/v1/chat/completions"
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
    async with host.fleet.http.post(url, json=body) as refused:
        error = (await refused.json())["error"]
        assert (refused.status, error["code"]) == (503, "model_failed"), error
        assert "404" in error["message"]
        assert int(refused.headers["Retry-After"]) > 0
    host.hub.server.serve("/later.gguf", Served(DATA))
    await host.try_again()
    await host.serves()


async def test_a_download_cut_three_times_arrives_as_it_is(host: Host) -> None:
    models = host.disk / "models"
    before = {*models.rglob("*.gguf")}
    host.hub.publish("org/model", {"m.gguf": DATA})
    host.hub.content(DATA).cuts = [1_000_000, 3, 2_000_000]
    await host.wish("hf://org/model/m.gguf", sha256=sha256(DATA))

    async def has_arrived() -> bool:
        return {*models.rglob("*.gguf")} > before

    await until(has_arrived)  # the agent goes on with the model before until then
    await host.serves()
    starts = host.hub.server.starts(f"/cdn/{sha256(DATA)}")
    assert starts == [None, 1_000_000, 1_000_003, 3_000_003]
    [kept] = {*models.rglob("*.gguf")} - before
    assert kept.read_bytes() == DATA


async def test_denied(host: Host) -> None:
    source = host.hub.server.serve("/secret.gguf", Served(DATA, statuses=[403, 403]))
    await host.wish(source)
    assert "403" in (await host.issue("denied"))["message"]
    await host.try_again()
    await host.serves()


async def test_a_checksum_of_another_file(host: Host) -> None:
    source = host.hub.server.serve("/checked.gguf", Served(DATA))
    await host.wish(source, sha256="0" * 64)
    await host.issue("wrong_checksum")
    await host.wish(source, sha256=sha256(DATA))
    await host.serves()


async def test_not_a_gguf(host: Host) -> None:
    served = Served(b"<html>come back later</html>" * 100)
    await host.wish(host.hub.server.serve("/page.gguf", served))
    await host.issue("not_a_gguf")
    served.data, served.etag = DATA, '"v2"'
    await host.try_again()
    await host.serves()


async def test_an_adapter_is_no_model(host: Host) -> None:
    await host.wish((MODEL.parent / "muleteer.gguf").absolute().as_uri())
    assert "is an adapter (LoRA), not a model" in (await host.issue("not_a_model"))["message"]
    await host.wish(MODEL.absolute().as_uri())
    await host.serves()


async def test_a_disk_that_is_full(host: Host) -> None:
    filler = fill(host.disk)
    await host.wish(host.hub.server.serve("/full.gguf", Served(DATA)))
    await host.issue("disk_full")
    filler.unlink()
    for copy in (host.disk / "models").rglob("*.gguf"):
        copy.unlink()
    await host.try_again()
    await host.serves()


LARGE = [f"M-Q8_0-000{number:02}-of-00025.gguf" for number in range(1, 26)]
"""Together larger than the memory of any host, and none larger than the hub sends."""


async def test_too_large_for_this_host(host: Host) -> None:
    """What is missing is named, and the nearest thing that would do; and that does."""
    parts = [DATA + bytes([number]) for number in range(25)]  # each with a digest of its own
    files = dict(zip(LARGE, parts, strict=True)) | {"M-Q4_0.gguf": DATA}
    host.hub.publish("org/large", files, padding=dict.fromkeys(LARGE, 49 * 10**9))
    query = {"source": "hf://org/large:Q8_0"}
    url = f"{host.fleet.management}/api/v1/models/fit"
    async with host.fleet.http.get(url, params=query) as response:
        [found] = (await response.json())["agents"]
    assert found["issue"] is None
    assert found["fit"]["missing"] > 10**12 / 2
    nearest, _, _ = found["fit"]["nearest"].partition(" ")
    assert nearest == "hf://org/large:Q4_0"

    await host.wish(nearest, slots=256, context_size=2**24)
    issue = await host.issue("too_large")
    assert re.search(r"which is [\d.]+ GiB too little$", issue["message"])
    assert re.match(r"with a context of \d+ tokens a slot it fits; or choose", issue["hint"])
    await host.wish(nearest)
    await host.serves()

    async def is_placed() -> bool:
        [model] = await host.fleet.view("models")
        return bool(model["placement"] == "on agent-1 (0.2 GiB)")

    await until(is_placed)


async def test_too_large_by_its_header(host: Host) -> None:
    """Nothing of a model is downloaded that no host of this size can hold."""
    giant = Served(DATA, padding=2**45)
    await host.wish(host.hub.server.serve("/giant.gguf", giant))
    issue = await host.issue("too_large")
    assert re.search(r"needs about \d+\.\d GiB of memory; this host has \d", issue["message"])
    asked = [each for each in host.hub.server.asked if each.path == "/giant.gguf"]
    assert asked and all(each.is_piece for each in asked)
    assert not list(host.disk.glob("models/**/giant*"))
