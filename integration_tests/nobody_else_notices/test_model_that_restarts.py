"""A model's only agent crashes or restarts: requests for it wait, instead of a 404."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

from integration_tests.corpus import Answer, generate, plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

NAME = "another"


async def start_agent(fleet: Fleet, folder: Path) -> Daemon:
    """The only agent of the model `another`."""
    path = folder / f"{NAME}.gguf"
    if not path.exists():
        shutil.copyfile(MODEL, path)
    return await fleet.start_agent(name=NAME, model=path, slots=1)


async def until_slots(fleet: Fleet, *slots: int) -> None:
    """Waits until there are agents called `another` with these slots."""

    async def reached() -> bool:
        agents = await fleet.view("agents")
        return [each["slots"]["total"] for each in agents if each["name"] == NAME] == [*slots]

    await until(reached)


def asking(fleet: Fleet) -> asyncio.Task[Answer]:
    body = plain_cases()[0].body | {"model": NAME}
    return asyncio.create_task(generate(fleet.http, fleet.inference, body))


async def listed(fleet: Fleet) -> dict[str, str]:
    """The status of each model, by name."""
    async with fleet.http.get(f"{fleet.inference}/v1/models") as response:
        models: list[dict[str, Any]] = (await response.json())["data"]
    return {each["id"]: each["status"] for each in models}


async def test_requests_for_it_wait(serving: Fleet, tmp_path: Path) -> None:
    async def attack(seen: Bystander) -> None:
        agent = await start_agent(serving, tmp_path)

        path = (tmp_path / f"{NAME}.gguf").rename(tmp_path / "hidden")
        agent.signal_engine(signal.SIGKILL)
        await until_slots(serving, 0)
        during_the_crash = asking(serving)
        await serving.until_num_requests(1, "queued")
        assert await listed(serving) == {"arriero-demo": "loaded", NAME: "loading"}
        path.rename(tmp_path / f"{NAME}.gguf")
        assert (await during_the_crash).text == plain_cases()[0].answer

        assert await agent.terminate() == 0
        await until_slots(serving)
        during_the_restart = asking(serving)
        await serving.until_num_requests(1, "queued")
        assert await listed(serving) == {"arriero-demo": "loaded", NAME: "unloaded"}
        await start_agent(serving, tmp_path)
        assert (await during_the_restart).text == plain_cases()[0].answer

        unknown = plain_cases()[0].body | {"model": "never-here"}
        refused = await generate(serving.http, serving.inference, unknown)
        assert (refused.status, refused.end["error"]["code"]) == (404, "model_not_found")

    await unnoticed(serving, attack)
