"""The inference app over a fake switchboard, through aiohttp's test client."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.doors.app import inference_app
from tests.balancer.doors.fake_switchboard import FakeSwitchboard


@pytest.fixture
async def switchboard() -> FakeSwitchboard:
    return FakeSwitchboard()


@pytest.fixture
async def client(switchboard: FakeSwitchboard) -> AsyncIterator[TestClient]:
    server = TestServer(inference_app(switchboard))
    async with TestClient(server) as client:
        yield client
