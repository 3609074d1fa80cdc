"""The memory of devices: what is measured, and how seldom."""

from asyncio import Future, get_running_loop
from collections.abc import Callable

import pytest

from arriero.agent.device_memory import INTERVAL, DeviceMeter, Devices, measure
from arriero.shared.reports.statistics import DeviceMemory

ONE = (DeviceMemory(name="CPU", kind="cpu", total=8, free=5),)
OTHER = (DeviceMemory(name="CPU", kind="cpu", total=8, free=3),)


def test_the_host_is_a_device() -> None:
    host, *_ = measure()
    assert (host.name, host.kind) == ("CPU", "cpu")
    assert 0 < host.free <= host.total


class Measuring:
    """Begins measurements, which end when a test says so."""

    def __init__(self) -> None:
        self.futures: list[Future[Devices]] = []

    def __call__(self, measure: Callable[[], Devices]) -> "Future[Devices]":
        self.futures.append(get_running_loop().create_future())
        return self.futures[-1]


async def turn() -> None:
    """Lets what was called soon be called."""
    future = get_running_loop().create_future()
    get_running_loop().call_soon(future.set_result, None)
    await future


async def test_it_measures_again_when_the_last_one_is_old_enough() -> None:
    measuring = Measuring()
    meter = DeviceMeter(measuring)
    meter.ask(100.0)
    meter.ask(100.0 + 2 * INTERVAL)
    assert len(measuring.futures) == 1, "it is still being measured"
    measuring.futures[0].set_result(ONE)
    await turn()
    assert meter.present == ONE
    meter.ask(99.0 + INTERVAL)
    assert len(measuring.futures) == 1
    meter.ask(100.0 + INTERVAL)
    measuring.futures[1].set_result(OTHER)
    await turn()
    assert meter.present == OTHER


async def test_a_driver_that_fails_leaves_what_was_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    measuring = Measuring()
    meter = DeviceMeter(measuring)
    meter.ask(0.0)
    measuring.futures[0].set_result(ONE)
    await turn()
    meter.ask(INTERVAL)
    measuring.futures[1].set_exception(OSError("no driver"))
    await turn()
    assert meter.present == ONE
    assert "could not be measured: no driver" in caplog.text
    meter.ask(2 * INTERVAL)
    measuring.futures[2].cancel()
    await turn()
    assert meter.present == ONE
