"""The log warns of the end, and a new certificate ends the warnings."""

import asyncio
import logging

import pytest

from arriero.balancer.tls.certificates import Certificates
from arriero.balancer.tls.expiry import DAY
from arriero.balancer.tls.expiry_watch import watch_expiry
from tests.waiting import HANGS


class FakeCertificates(Certificates):
    """What is watched: days that a test sets."""

    def __init__(self, days: float) -> None:
        self.days = days
        self.num_asked = 0
        self.asked = asyncio.Event()

    def seconds_left(self) -> float:
        self.num_asked += 1
        self.asked.set()
        return self.days * DAY


async def test_it_warns_and_looks_again_when_there_is_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates = FakeCertificates(days=3)
    with caplog.at_level(logging.WARNING):
        watching = asyncio.create_task(watch_expiry(certificates))
        await certificates.asked.wait()
        certificates.asked.clear()
        certificates.days = 90
        await asyncio.sleep(0)
        certificates.on_change()
        async with asyncio.timeout(HANGS):
            await certificates.asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        watching.cancel()
    assert [each.getMessage() for each in caplog.records] == [
        "the certificate expires in 3 days; renew it"
    ]
    assert certificates.num_asked == 2
