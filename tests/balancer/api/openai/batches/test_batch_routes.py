"""`/v1/batches` over HTTP."""

import json
from typing import Any

import pytest

from arriero.balancer.api.openai.batches.batch_routes import parse_batch
from arriero.shared.errors import InvalidRequest
from tests.balancer.api.openai.batches.conftest import Served
from tests.balancer.jobs.builders import URL, ended, request_line, uploaded

NEVER = {"m": 0, None: 0}


async def create(served: Served, **change: object) -> tuple[int, dict[str, Any]]:
    file = await uploaded(served.jobs, request_line(1) + b"poison\n")
    body = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h", **change}
    async with served.client.post("/v1/batches", json=body) as answer:
        return answer.status, dict(await answer.json())


async def test_a_batch_from_its_file_to_its_files(served: Served) -> None:
    status, batch = await create(served, metadata={"a": "b"})
    assert (status, batch["object"], batch["status"]) == (200, "batch", "validating")
    assert batch["metadata"] == {"a": "b"}
    await ended(served.jobs, batch["id"])
    async with served.client.get(f"/v1/batches/{batch['id']}") as answer:
        batch = await answer.json()
    assert (batch["status"], batch["request_counts"]) == (
        "completed",
        {"total": 2, "completed": 1, "failed": 1},
    )
    async with served.client.get(f"/v1/files/{batch['output_file_id']}/content") as answer:
        assert json.loads(await answer.read())["custom_id"] == "r1"


async def test_one_is_cancelled_once(served: Served) -> None:
    served.house.fleet.slots = {}
    _, batch = await create(served)
    async with served.client.post(f"/v1/batches/{batch['id']}/cancel") as answer:
        assert (await answer.json())["status"] == "cancelling"
    await ended(served.jobs, batch["id"])
    async with served.client.post(f"/v1/batches/{batch['id']}/cancel") as answer:
        assert answer.status == 409


async def test_pages(served: Served) -> None:
    ids = [(await create(served))[1]["id"] for _ in range(3)]
    async with served.client.get("/v1/batches?limit=2") as answer:
        page = await answer.json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([ids[2], ids[1]], True)
    async with served.client.get(f"/v1/batches?after={ids[1]}") as answer:
        page = await answer.json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([ids[0]], False)
    async with served.client.get("/v1/batches?after=batch_none") as answer:
        assert (await answer.json())["error"]["param"] == "after"


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"endpoint": "/v1/models"}, 400, "endpoint"),
        ({"completion_window": "soon"}, 400, "completion_window"),
        ({"completion_window": "90d"}, 400, "completion_window"),
        ({"input_file_id": "file-none"}, 404, "input_file_id"),
        ({"nosuch": 1}, 400, "nosuch"),
        ({"metadata": {"a": 1}}, 400, "metadata.a"),
    ],
)
async def test_what_is_wrong_is_named(
    served: Served, change: dict[str, object], status: int, param: str
) -> None:
    got, body = await create(served, **change)
    assert (got, body["error"]["param"]) == (status, param)


async def test_what_is_not_there(served: Served) -> None:
    async with served.client.get("/v1/batches/batch_none") as answer:
        assert answer.status == 404
    async with served.client.post("/v1/batches/batch_none/cancel") as answer:
        assert answer.status == 404


GOOD = {"input_file_id": "f", "endpoint": "/v1/responses", "completion_window": "24h"}


def test_openais_own() -> None:
    expires = {"anchor": "created_at", "seconds": 3600}
    requested = parse_batch(json.dumps(GOOD | {"output_expires_after": expires}).encode())
    assert (requested.window, requested.completion_window) == (86_400.0, "24h")
    assert requested.output_expires_after == 3600


@pytest.mark.parametrize("window", ["30m", "1.5h", "30d"])
def test_other_windows(window: str) -> None:
    assert parse_batch(json.dumps(GOOD | {"completion_window": window}).encode()).window > 0


@pytest.mark.parametrize("window", ["0s", "31d", "400d", "", "x", "-1h"])
def test_windows_that_are_none(window: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_batch(json.dumps(GOOD | {"completion_window": window}).encode())
    assert error.value.field == "completion_window"
