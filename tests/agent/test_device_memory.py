"""The memory of devices: what is measured, and how seldom."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.agent.device_memory import DeviceMeter, Devices, Probe
from arriero.agent.engine.llama.devices import FoundDevice
from arriero.agent.nvidia import Card, NvidiaCards
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


class Cards(NvidiaCards):
    """What a driver tells, without one."""

    def __init__(self, cards: dict[str, Card]) -> None:
        super().__init__()
        self.told = cards
        self.num_read = 0

    def read(self) -> dict[str, Card]:
        self.num_read += 1
        return self.told


def gpu(name: str, place: str | None = None, description: str = "a card") -> FoundDevice:
    return FoundDevice(name, description, "gpu", memory=8, free=5, place=place)


def measured(cards: Cards, root: Path, *gpus: FoundDevice) -> list[tuple[object, ...]]:
    _, *found = Probe(lambda: [*gpus], cards, root).measure()
    return [(each.name, each.others, each.use, each.temperature) for each in found]


def test_each_card_has_its_own_figures(tmp_path: Path) -> None:
    """CUDA counts from the fastest card on, NVML by their places; the kernel knows AMD's."""
    hwmon = tmp_path / "sys/bus/pci/devices/0000:07:00.0/hwmon/hwmon1"
    hwmon.mkdir(parents=True)
    (hwmon / "temp1_input").write_text("55000")
    cards = Cards({"0000:01:00.0": Card(0.1, 50.0, 1), "0000:02:00.0": Card(0.2, 60.0, 2)})
    found = measured(
        cards,
        tmp_path,
        gpu("CUDA0", "0000:02:00.0"),
        gpu("CUDA1", "0000:01:00.0"),
        gpu("CUDA2", "0000:03:00.0"),
        gpu("ROCm0", "0000:07:00.0"),
        gpu("Vulkan0", None, "NVIDIA L4"),
        gpu("RPC0", "0000:01:00.0", "10.0.0.1:50052 NVIDIA"),
    )
    assert found == [
        ("CUDA0", 2, 0.2, 60.0),
        ("CUDA1", 1, 0.1, 50.0),
        ("CUDA2", None, None, None),
        ("ROCm0", None, None, 55.0),
        ("Vulkan0", None, None, None),
        ("RPC0", None, None, None),
    ]


def test_one_card_without_a_place_is_the_one_that_is_told(tmp_path: Path) -> None:
    cards = Cards({"a": Card(0.5, 70.0, 3)})
    assert measured(cards, tmp_path, gpu("CUDA0")) == [("CUDA0", 3, 0.5, 70.0)]
    cards.told["b"] = Card(0.6)
    assert measured(cards, tmp_path, gpu("CUDA0")) == [("CUDA0", None, None, None)]


def test_nvidias_driver_is_asked_where_it_has_a_card(tmp_path: Path) -> None:
    cards = Cards({})
    measured(cards, tmp_path, gpu("ROCm0", "0000:07:00.0"), gpu("RPC0", None, "NVIDIA"))
    measured(cards, tmp_path)
    assert cards.num_read == 0
