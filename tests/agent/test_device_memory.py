"""The memory of devices: what is measured, and how seldom."""

from asyncio import Future, get_running_loop
from collections.abc import Callable

import pytest

from arriero.agent.device_memory import DeviceMeter, Devices, Probe
from arriero.shared.reports.statistics import DeviceMemory

ONE = (DeviceMemory(name="CPU", kind="cpu", total=8, free=5),)
OTHER = (DeviceMemory(name="CPU", kind="cpu", total=8, free=3),)


def test_the_host_is_a_device() -> None:
    host, *_ = Probe().measure()
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


async def test_one_measurement_at_a_time() -> None:
    measuring = Measuring()
    told: list[None] = []
    meter = DeviceMeter(measuring, lambda: told.append(None))
    meter.ask()
    meter.ask()
    assert len(measuring.futures) == 1, "it is still being measured"
    measuring.futures[0].set_result(ONE)
    await turn()
    assert meter.present == ONE
    assert len(told) == 1
    meter.ask()
    measuring.futures[1].set_result(OTHER)
    await turn()
    assert meter.present == OTHER


async def test_a_driver_that_fails_leaves_what_was_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    measuring = Measuring()
    told: list[None] = []
    meter = DeviceMeter(measuring, lambda: told.append(None))
    meter.ask()
    measuring.futures[0].set_result(ONE)
    await turn()
    meter.ask()
    measuring.futures[1].set_exception(OSError("no driver"))
    await turn()
    assert meter.present == ONE
    assert "could not be measured: no driver" in caplog.text
    meter.ask()
    measuring.futures[2].cancel()
    await turn()
    assert meter.present == ONE
    assert len(told) == 1
