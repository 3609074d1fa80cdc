"""What a fleet remembers of its hosts and of what happened; a backup of it, restored elsewhere."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from integration_tests.daemons import DEADLINE, MODEL, Fleet, until
from tests import s3_server
from tests.balancer.store.postgres import PostgresServer

ARRIERO = str(Path(sys.executable).with_name("arriero"))
QUESTION = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"prompt": "The balancer", "max_tokens": 3, "temperature": 0},
}


async def arriero(fleet: Fleet, *argv: str, env: Mapping[str, str] | None = None) -> str:
    places = {"ARRIERO_URL": fleet.inference, "ARRIERO_MANAGEMENT": fleet.management}
    process = await asyncio.create_subprocess_exec(
        *(ARRIERO, *argv),
        env={**os.environ, **places, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0
    return output.decode()


async def told(fleet: Fleet, kind: str, subject: str) -> bool:
    """Whether the management port tells it; each start of a command takes a second."""
    async with fleet.http.get(f"{fleet.management}/api/v1/diary") as response:
        return (kind, subject) in events((await response.json())["entries"])


def events(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["kind"], each["subject"]) for each in entries]


async def results(fleet: Fleet, batch: str) -> Any:
    """The lines that answer a batch, once it is completed."""

    async def completed() -> bool:
        async with fleet.http.get(f"{fleet.inference}/v1/batches/{batch}") as response:
            found.update(await response.json())
        return bool(found["status"] == "completed")

    found: dict[str, Any] = {}
    await until(completed)
    url = f"{fleet.inference}/v1/files/{found['output_file_id']}/content"
    async with fleet.http.get(url) as response:
        return json.loads(await response.text())


async def submitted(fleet: Fleet) -> str:
    """The id of a new batch of one question."""
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", json.dumps(QUESTION), filename="questions.jsonl")
    async with fleet.http.post(f"{fleet.inference}/v1/files", data=form) as response:
        file = (await response.json())["id"]
    batch = {"input_file_id": file, "endpoint": QUESTION["url"], "completion_window": "24h"}
    async with fleet.http.post(f"{fleet.inference}/v1/batches", json=batch) as response:
        return str((await response.json())["id"])


async def test_files_in_a_bucket_beside_postgresql_are_backed_up_and_restored(
    fleet: Fleet, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(PostgresServer)
    bucket = await asyncio.to_thread(s3_server.started)
    backup, place, other = str(tmp_path / "files.tar"), "s3://bucket/a", "s3://bucket/b"
    try:
        await asyncio.to_thread(server.start)
        state = await asyncio.to_thread(server.database)
        await fleet.start_balancer(state=state, files=place, env=bucket.environment)
        await fleet.start_agent()
        batch = await submitted(fleet)
        before = await results(fleet, batch)
        await asyncio.to_thread(server.dump, state, tmp_path / "state.dump")
        await arriero(
            fleet, "backup", backup, "--state", state, "--files", place, env=bucket.environment
        )
        archive = await asyncio.to_thread(Path(backup).read_bytes)
        assert s3_server.SECRET.encode() not in archive
        restored = await asyncio.to_thread(server.restored, tmp_path / "state.dump")
        await fleet.balancer.close()
        await arriero(
            fleet, "restore", backup, "--state", restored, "--files", other, env=bucket.environment
        )
        await fleet.start_balancer(state=restored, files=other, env=bucket.environment)
        assert await results(fleet, batch) == before
        await fleet.balancer.close()
    finally:
        await asyncio.to_thread(bucket.stop)
        await asyncio.to_thread(server.remove)


async def test_hosts_are_remembered_and_a_backup_has_everything(
    fleet: Fleet, tmp_path: Path
) -> None:
    await fleet.start_balancer(state=f"sqlite:///{tmp_path}/state.db")
    agent = await fleet.start_agent(name="box", label="zone=a")
    batch_id = await submitted(fleet)
    before = await results(fleet, batch_id)
    source = MODEL.absolute().as_uri()
    await arriero(fleet, "models", "add", source, "--name", "wished", "--no-preload")
    for kind, subject in (
        *(("host_came", "box"), ("model_loaded", "arriero-demo")),
        ("models_changed", "desired models"),
    ):
        await until(partial(told, fleet, kind, subject))
    agent.signal(signal.SIGTERM)
    assert await agent.exit_code() == 0
    await until(partial(told, fleet, "host_went", "box"))
    assert "box" in (await arriero(fleet, "agents")).split("not here")[1]
    backup = tmp_path / "backup.tar"
    await arriero(fleet, "backup", str(backup), "--state", f"sqlite:///{tmp_path}/state.db")
    await fleet.balancer.close()
    restored = tmp_path / "restored"
    restored.mkdir()
    state = f"sqlite:///{restored}/state.db"
    await arriero(fleet, "restore", str(backup), "--state", state)
    shutil.rmtree(tmp_path / "state.db-files")
    await fleet.start_balancer(state=state)
    assert await results(fleet, batch_id) == before
    listed = json.loads(await arriero(fleet, "diary", "--json"))
    assert ("host_went", "box") in events(listed)
    [host] = await fleet.view("hosts")
    assert (host["name"], host["state"], host["labels"]) == ("box", "stopped", {"zone": "a"})
    assert "wished" in await arriero(fleet, "models")
    await arriero(fleet, "agents", "forget", "box")
    assert await fleet.view("hosts") == []
