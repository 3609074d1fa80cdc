"""Batches over several balancers: begun at one of them, looked at from another."""

import json
from collections import Counter
from typing import Any

import aiohttp

from integration_tests.daemons import Fleet, until

URL = "/v1/chat/completions"
BEGUN = 10
"""Lines that are done when a batch counts as running."""

END_DEADLINE = 180.0
"""Seconds; what a killed balancer had is free after 15."""


def lines(num: int, model: str) -> bytes:
    """The input of a batch, with so many lines."""
    return "\n".join(json.dumps(_line(number, model)) for number in range(num)).encode()


def _line(number: int, model: str) -> dict[str, Any]:
    question = f"What is slot {number}?"
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 12,
        "temperature": 0,
    }
    return {"custom_id": f"r{number}", "method": "POST", "url": URL, "body": body}


async def begin(fleet: Fleet, num: int, model: str) -> str:
    """Start a batch, and wait until it runs; its id."""
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", lines(num, model), filename="in.jsonl")
    async with fleet.http.post(f"{fleet.inference}/v1/files", data=form) as response:
        assert response.status == 200, await response.text()
        file = (await response.json())["id"]
    body = {"input_file_id": file, "endpoint": URL, "completion_window": "24h"}
    async with fleet.http.post(f"{fleet.inference}/v1/batches", json=body) as response:
        assert response.status == 200, await response.text()
        id = str((await response.json())["id"])

    async def runs() -> bool:
        batch = await _batch(fleet, id)
        assert batch["status"] in ("validating", "in_progress"), batch
        return bool(batch["request_counts"]["completed"] >= BEGUN)

    await until(runs, deadline=120.0)
    return id


async def wrong_lines(fleet: Fleet, id: str, num: int) -> list[str]:
    """Wait for the end; which lines were answered never, twice, or with an error."""

    async def has_ended() -> bool:
        return (await _batch(fleet, id))["status"] in ("completed", "failed", "expired")

    await until(has_ended, deadline=END_DEADLINE)
    batch = await _batch(fleet, id)
    url = f"{fleet.inference}/v1/files/{batch['output_file_id']}/content"
    async with fleet.http.get(url) as response:
        assert response.status == 200, f"{await response.text()}: {batch}"
        rows = [json.loads(row) for row in (await response.read()).splitlines()]
    return wrong_of(rows, num)


def wrong_of(rows: list[dict[str, Any]], num: int) -> list[str]:
    """The lines, of `num`, that these rows of the output do not answer exactly once."""
    answered = Counter(
        row["custom_id"]
        for row in rows
        if row["response"] and row["response"]["status_code"] == 200
    )
    expected = [f"r{number}" for number in range(num)]
    strange = sorted(answered.keys() - set(expected))
    wrong = [*(id for id in expected if answered[id] != 1), *strange]
    return [f"{id}: {answered[id]} answers" for id in wrong]


async def _batch(fleet: Fleet, id: str) -> dict[str, Any]:
    async with fleet.http.get(f"{fleet.inference}/v1/batches/{id}") as response:
        assert response.status == 200, await response.text()
        batch: dict[str, Any] = await response.json()
        return batch
