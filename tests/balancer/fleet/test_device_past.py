"""Rings of what devices had to do; time comes from the test."""

from arriero.balancer.fleet.device_past import (
    MAX_DEVICES,
    NUM_STEPS,
    STEP,
    DevicePast,
    DevicePoint,
)
from arriero.balancer.fleet.registry import RETURNED
from arriero.shared.inference import AgentId
from arriero.shared.reports.statistics import DeviceMemory

A, B = AgentId("a"), AgentId("b")
HOST = ("CPU", "cpu")


def device(used: int = 1, *, name: str = "CPU", use: float | None = None) -> DeviceMemory:
    return DeviceMemory(name=name, kind="cpu", total=100, free=100 - used, use=use)


def test_a_point_in_each_step() -> None:
    past = DevicePast()
    past.measured(A, [device(1)], 10.0)
    past.measured(A, [device(2, use=0.5)], 14.9)
    past.measured(A, [device(3, use=0.75)], 15.0)
    assert past.of(A, 16.0)[HOST] == [
        DevicePoint(10.0, (2, 0.5, None)),
        DevicePoint(15.0, (3, 0.75, None)),
    ]
    assert past.of(B, 16.0) == {}


def test_the_oldest_go() -> None:
    past = DevicePast()
    for number in range(NUM_STEPS + 5):
        past.measured(A, [device(number % 100)], number * STEP)
    now = (NUM_STEPS + 4) * STEP
    points = past.of(A, now)[HOST]
    assert len(points) == NUM_STEPS
    assert points[0].at == 5 * STEP
    assert [point.at for point in past.of(A, now + 118 * STEP)[HOST]] == [now - STEP, now]
    assert past.of(A, now + NUM_STEPS * STEP) == {}, "a device that is told of no more"


def test_a_host_has_no_end_of_devices() -> None:
    past = DevicePast()
    for number in range(3):
        names = [f"GPU{number}-{each}" for each in range(64)]
        past.measured(A, [device(name=name) for name in names], 1.0)
    assert len(past.of(A, 2.0)) == MAX_DEVICES
    broken = DeviceMemory(name="GPU0-0", kind="cpu", total=1, free=5)
    past.measured(A, [broken], 1.0)
    assert past.of(A, 2.0)["GPU0-0", "cpu"] == [DevicePoint(0.0, (0, None, None))]


def test_a_host_that_left_is_forgotten() -> None:
    past = DevicePast()
    past.left(B, 1.0)
    past.measured(A, [device()], 1.0)
    past.left(A, 2.0)
    past.measured(B, [device()], 2.0 + RETURNED)
    assert past.num_hosts == 2, "it may be back"
    past.measured(B, [device()], 2.1 + RETURNED)
    assert past.num_hosts == 1
    assert past.of(A, 20.0) == {}


def test_a_host_that_is_back_goes_on() -> None:
    past = DevicePast()
    past.measured(A, [device()], 1.0)
    past.left(A, 2.0)
    past.joined(A)
    past.measured(B, [device()], 100.0)
    assert past.of(A, 100.0)[HOST] == [DevicePoint(0.0, (1, None, None))]
