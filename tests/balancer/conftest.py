"""Stores of tests are not given up because a machine was busy: their deadlines are far away."""

from collections.abc import Iterator

import pytest

from arriero.balancer import persistence
from arriero.balancer.store import engine, writer
from tests.waiting import HANGS


@pytest.fixture(autouse=True)
def stores_have_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "CONNECT_TIMEOUT", HANGS)
        patched.setattr(persistence, "LAST_WRITES", HANGS)
        patched.setattr(writer, "TRY_TIMEOUT", HANGS)
        yield
