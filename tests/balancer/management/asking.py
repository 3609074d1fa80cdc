"""A question to the management port, whose answer has the headers that all have."""

from typing import Any

from aiohttp.test_utils import TestClient


async def get(client: TestClient, path: str) -> tuple[int, Any]:
    async with client.get(path) as response:
        assert response.headers["Content-Type"].startswith("application/json")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return response.status, await response.json()
