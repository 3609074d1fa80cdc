"""The inference port with files and batches over a fake fleet; every line is answered."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.jobs.jobs import Jobs
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.jobs.builders import House


@dataclass
class Served:
    client: TestClient
    jobs: Jobs
    house: House


@pytest.fixture
async def served(tmp_path: Path, closes_stores: None) -> AsyncIterator[Served]:
    house = House(tmp_path)
    async with house.running() as jobs:
        app = inference_app(FakeFleetRuntime(), jobs=jobs)
        async with TestClient(TestServer(app)) as client:
            yield Served(client, jobs, house)
    await asyncio.sleep(0)
