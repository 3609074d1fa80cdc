"""A fleet of the last release is upgraded: the balancer first, then its agents, one by one.

The old daemons are those of the wheel that `release/wheels.py` finds: the last release's, as it was
recorded. Until 0.1.0 is recorded there is no such wheel, and the old daemons are those of the last
tag, or of the tree as it is: then this shows that the steps work, and not yet that two versions
understand each other. A release whose wheel is not recorded fails these tests.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from arriero.balancer.access.access_key import new_key
from arriero.client import Client
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from release import wheels

ROOT = Path(__file__).parent.parent
ADMIN = new_key(b"a" * 32)
WISHED = {"name": "demo", "source": MODEL.absolute().as_uri(), "slots": 2, "context_size": 1024}
UNLOADED: dict[str, Any] = {"model": None, "slots": None, "context_size": None}
"""An agent that loads what is wished."""

ASKED = {"model": "demo", "prompt": "The balancer", "max_tokens": 8, "temperature": 0}
NUM_LINES = 3
BATCH = "\n".join(
    f'{{"custom_id": "r{number}", "method": "POST", "url": "/v1/completions", "body": '
    '{"model": "demo", "prompt": "The balancer", "max_tokens": 8, "temperature": 0}}'
    for number in range(NUM_LINES)
)


@pytest.fixture(scope="module")
def old_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the last release and its programs; for the rest it needs this environment."""
    folder = tmp_path_factory.mktemp("old")
    wheel = wheels.last(ROOT, folder)
    target = folder / "installed"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    subprocess.run((*pip, "--target", target, wheel), check=True)
    where = "import arriero.agent, arriero.balancer as b; print(arriero.agent.__file__, b.__file__)"
    environ = os.environ | {"PYTHONPATH": str(target)}
    said = subprocess.run(
        (sys.executable, "-P", "-c", where), env=environ, capture_output=True, text=True, check=True
    )
    expected = [target / "arriero" / name / "__init__.py" for name in ("agent", "balancer")]
    assert said.stdout.split() == [str(each) for each in expected], "else the old one is the new"
    return target


class UpgradedFleet:
    """One balancer with an admin's key, and agents; each is of the old release or of the new."""

    def __init__(self, stack: AsyncExitStack, old_release: Path, folder: Path) -> None:
        self.secrets = {"admin": ADMIN}
        self._old_release = old_release
        self._new, self._old = Fleet(stack), Fleet(stack, old_release / "bin", forks=False)
        self._folder = folder
        (folder / "admin.key").write_text(ADMIN)

    async def start_balancer(self, *, is_old: bool) -> Daemon:
        """Where the one before was, with what that one kept."""
        fleet = self._old if is_old else self._new
        ready = self._new.balancer.ready if hasattr(self._new, "balancer") else {}
        addresses = {f"{port}_addr": ready.get(port) for port in ("inference", "management")}
        balancer = await fleet.start_balancer(
            env=self._environ(is_old=is_old),
            state=f"sqlite:///{self._folder}/state.db",
            admin_key_file=self._folder / "admin.key",
            **{name: address for name, address in addresses.items() if address},
        )
        self._old.balancer = self._new.balancer = balancer
        return balancer

    async def start_agent(self, name: str, *, is_old: bool) -> Daemon:
        fleet = self._old if is_old else self._new
        environ = self._environ(is_old=is_old) | {"ARRIERO_AGENT_KEY": self.secrets["rack"]}
        return await fleet.start_agent(name=name, env=environ, **UNLOADED)

    def _environ(self, *, is_old: bool) -> dict[str, str]:
        return {"PYTHONPATH": str(self._old_release)} if is_old else {}

    def client(self, key: str) -> Client:
        fleet = self._new
        return Client(fleet.inference, management=fleet.management, key=self.secrets[key])

    async def make_keys(self) -> None:
        async with self.client("admin") as client:
            for name, role in (("rack", "agent"), ("app", "inference")):
                made = await client.management.create_key(name, role)
                self.secrets[name] = made["key"]

    async def wish(self) -> None:
        async with self.client("admin") as client:
            await client.management.wish({"models": [WISHED]})

    async def until_serving(self, *names: str) -> None:
        """Waits until these agents, and no others, serve what is wished."""
        async with self.client("admin") as client:

            async def serve() -> bool:
                agents = await client.management.agents()
                ready = [each for each in agents if each["state"] == "ready" and each["model"]]
                served = sorted(each["name"] for each in ready if each["model"]["name"] == "demo")
                return served == sorted(names) and len(agents) == len(names)

            await until(serve)

    async def ask(self) -> str:
        """What the fleet answers the holder of the application's key."""
        async with self.client("app") as client:
            answer = await client.generate(**ASKED)
        assert answer.usage.completion_tokens == 8
        return answer.text

    async def run_batch(self) -> str:
        """A batch that has completed: its id."""
        path = self._folder / "batch.jsonl"
        path.write_text(BATCH)
        async with self.client("app") as client:
            file = await client.jobs.upload(path)
            batch = await client.jobs.create(file["id"], "/v1/completions")

            async def has_ended() -> bool:
                found = await client.jobs.get(batch["id"])
                return found["status"] == "completed"

            await until(has_ended)
        return str(batch["id"])

    async def until_used(self, *, by_requests: int) -> None:
        """Waits until the application's key is said to have made so many requests in all."""
        async with self.client("admin") as client:

            async def said() -> bool:
                rows = (await client.management.usage(by="caller"))["usage"]
                return [row["requests"] for row in rows if row["caller"] == "app"] == [by_requests]

            await until(said)

    async def kept(self, batch: str) -> dict[str, Any]:
        """What the store has to keep, as the APIs show it."""
        async with self.client("app") as client:
            job = await client.jobs.get(batch)
            results = BytesIO()
            await client.jobs.download(job["output_file_id"], results)
        async with self.client("admin") as client:
            keys = await client.management.keys()
            wished = (await client.management.desired_state()).state["models"]
        assert results.getvalue().count(b'"status_code"') == NUM_LINES
        return {
            "batch": (job["status"], job["request_counts"], results.getvalue()),
            "keys": [(each["name"], each["role"]) for each in keys],
            "wished": [{name: model[name] for name in WISHED} for model in wished],
        }


@pytest.fixture
async def upgraded_fleet(old_release: Path, tmp_path: Path) -> AsyncIterator[UpgradedFleet]:
    async with AsyncExitStack() as stack:
        yield UpgradedFleet(stack, old_release, tmp_path)


async def test_the_balancer_is_upgraded_and_then_the_agents(upgraded_fleet: UpgradedFleet) -> None:
    """Requests are answered at each step, and all that was kept is there at the end of each."""
    fleet = upgraded_fleet
    balancer = await fleet.start_balancer(is_old=True)
    await fleet.make_keys()
    await fleet.wish()
    old_agent = await fleet.start_agent("old", is_old=True)
    await fleet.until_serving("old")
    answer = await fleet.ask()
    batch = await fleet.run_batch()
    before = await fleet.kept(batch)
    await fleet.until_used(by_requests=1 + NUM_LINES)

    assert await balancer.terminate() == 0
    await fleet.start_balancer(is_old=False)
    await fleet.until_serving("old")
    assert await fleet.kept(batch) == before
    await fleet.until_used(by_requests=1 + NUM_LINES)
    assert await fleet.ask() == answer

    await fleet.start_agent("new", is_old=False)
    await fleet.until_serving("new", "old")
    answers = asyncio.gather(*(fleet.ask() for _ in range(8)))
    assert await old_agent.terminate() == 0
    assert set(await answers) == {answer}, "whoever served them"
    await fleet.until_serving("new")
    assert await fleet.ask() == answer
    assert await fleet.run_batch() != batch
    assert await fleet.kept(batch) == before
    await fleet.until_used(by_requests=1 + NUM_LINES + 1 + 8 + 1 + NUM_LINES)


async def test_an_agent_is_upgraded_before_the_balancer(upgraded_fleet: UpgradedFleet) -> None:
    """An old balancer and a new agent agree on what the old one speaks."""
    fleet = upgraded_fleet
    await fleet.start_balancer(is_old=True)
    await fleet.make_keys()
    await fleet.wish()
    await fleet.start_agent("new", is_old=False)
    await fleet.until_serving("new")
    assert await fleet.ask()
    await fleet.run_batch()
