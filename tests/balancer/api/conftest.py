"""The inference app over a fake fleet runtime, through aiohttp's test client."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from tests.balancer.api.fake_runtime import FakeFleetRuntime


@pytest.fixture
async def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    server = TestServer(inference_app(runtime))
    async with TestClient(server) as client:
        yield client
