from collections.abc import AsyncIterator

import pytest

from tests.client.fakes import FakeServer, serving


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serving() as server:
        yield server
