"""An open socket of the native API."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientWebSocketResponse
from aiohttp.test_utils import TestClient


@pytest.fixture
async def socket(client: TestClient) -> AsyncIterator[ClientWebSocketResponse]:
    async with client.ws_connect("/api/v1/socket") as socket:
        yield socket
