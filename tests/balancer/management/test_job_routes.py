"""Everybody's batches, for operators."""

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.route import mount
from arriero.balancer.api.transport.fault_reports import FAULT_REPORTS, FaultReports
from arriero.balancer.api.transport.http import middleware
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.jobs.jobs import Jobs
from arriero.balancer.management.job_routes import routes
from tests.balancer.jobs.builders import House, created, ended, request_line

pytestmark = pytest.mark.usefixtures("closes_stores")


def app(jobs: Jobs | None) -> web.Application:
    made = web.Application(middlewares=[middleware()])
    made[FAULT_REPORTS] = FaultReports()
    mount(made, routes(jobs))
    return made


async def test_they_are_seen_and_cancelled(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.fleet.slots = {}
    async with house.running() as jobs, TestClient(TestServer(app(jobs))) as client:
        ann = Caller(name="ann", owner="ann")
        id = (await created(jobs, request_line(1), caller=ann)).id
        async with client.get("/api/v1/batches") as answer:
            [view] = (await answer.json())["batches"]
        assert (view["id"], view["caller"], view["completed"]) == (id, "ann", 0)
        assert view["lines_per_second"] is None
        assert view["output_file_id"] is view["error_file_id"] is view["failure"] is None
        async with client.post(f"/api/v1/batches/{id}/cancel") as answer:
            assert (await answer.json())["status"] == "cancelling"
        await ended(jobs, id, "ann")
        house.callers["bob"] = Caller(name="bob")
        failed = await created(jobs, b"poison\n", caller=Caller(name="bob", owner="bob"))
        await ended(jobs, failed.id, "bob")
        async with client.get("/api/v1/batches") as answer:
            view = (await answer.json())["batches"][0]
        assert (view["id"], view["status"]) == (failed.id, "failed")
        assert view["failure"]
        async with client.post(f"/api/v1/batches/{id}/cancel") as answer:
            assert answer.status == 409


async def test_a_balancer_without_batches() -> None:
    async with TestClient(TestServer(app(None))) as client:
        async with client.get("/api/v1/batches") as answer:
            assert await answer.json() == {"batches": []}
        async with client.post("/api/v1/batches/b/cancel") as answer:
            assert answer.status == 404
