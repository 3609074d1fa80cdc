"""NVIDIA's cards as NVML tells them; a library that stands in for it, in C and in Python."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from arriero.agent.nvidia import Card, NvidiaCards, bus_place, is_of_this_agent
from tests.waiting import HANGS

LIBRARY = """
#include <string.h>
typedef struct { unsigned int gpu, memory; } Use;
typedef struct { char legacy[16]; unsigned int numbers[5]; char place[32]; } Pci;
typedef struct { unsigned int pid, unused; unsigned long long memory; unsigned int a, b; } Process;
enum { OK = 0, NOT_SUPPORTED = 3, TOO_SMALL = 7, LOST = 15 };

int nvmlInitWithFlags(unsigned int flags) { return OK; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 3; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{ *handle = (void *)(long)(index + 1); return index == 1 ? LOST : OK; }
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci)
{ strcpy(pci->place, (long)handle == 1 ? "00000000:C1:00.0" : "00000001:02:00.0"); return OK; }
int nvmlDeviceGetUtilizationRates(void *handle, Use *use)
{ use->gpu = 37; return (long)handle == 1 ? OK : NOT_SUPPORTED; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *degrees)
{ *degrees = 60 + (long)handle; return sensor == 0 ? OK : NOT_SUPPORTED; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *processes)
{
    if (*count < 2) { *count = 2; return TOO_SMALL; }
    *count = 2;
    processes[0].pid = getpid(); processes[0].memory = 1000;
    processes[1].pid = 1; processes[1].memory = 70;
    return OK;
}
"""

READ = """
import dataclasses, json
from arriero.agent.nvidia import NvidiaCards
cards = NvidiaCards(patience=60).read()
print(json.dumps({place: dataclasses.asdict(card) for place, card in cards.items()}))
"""


@pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_librarys_own_figures(tmp_path: Path) -> None:
    """The second card is lost, the third one does not know its use; the driver is an old one."""
    source = tmp_path / "nvml.c"
    source.write_text("#include <unistd.h>\n" + LIBRARY)
    library = str(tmp_path / "libnvidia-ml.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(source)], check=True)
    told = {"use": None, "temperature": 63.0, "others": 70}
    assert read(LD_LIBRARY_PATH=str(tmp_path)) == {
        "0000:c1:00.0": {"use": 0.37, "temperature": 61.0, "others": 70},
        "0001:02:00.0": told,
    }


@pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_no_library_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    assert read(LD_LIBRARY_PATH=str(tmp_path)) == {}


def read(**environment: str) -> Any:
    """In a process of its own: a library is loaded once. Nothing is said on its way."""
    done = subprocess.run(
        [sys.executable, "-c", READ],
        env=os.environ | environment,
        capture_output=True,
        check=True,
        timeout=HANGS,
    )
    assert done.stderr == b""
    return json.loads(done.stdout)


class NvmlError(Exception):
    """What the module raises."""


class MismatchError(Exception):
    """What it raises of functions that the driver's library lacks."""


class Nvml:
    """The module with one card; what a test puts in place of a function is told in its place."""

    NVMLError = NvmlError
    NVMLLibraryMismatchError = MismatchError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.num_begun = 0
        self.processes = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=5)]
        for name, function in functions.items():
            setattr(self, name, function)

    def nvmlInit(self) -> None:  # noqa: N802
        self.num_begun += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:01:00.0")

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 40

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return self.processes

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return []


PLACE = "0000:01:00.0"


def refuse(*_: object) -> Any:
    raise NvmlError


def mismatch(*_: object) -> Any:
    raise MismatchError


def cards(nvml: Nvml | None, root: Path = Path("/")) -> NvidiaCards:
    return NvidiaCards(lambda: nvml, patience=HANGS, root=root)


def test_a_driver_that_is_not_there_is_asked_again() -> None:
    nvml = Nvml(nvmlDeviceGetCount=refuse)
    reader = cards(nvml)
    assert reader.read() == {}
    del nvml.nvmlDeviceGetCount  # type: ignore[method-assign]
    assert reader.read() == {PLACE: Card(use=0.5, temperature=40.0, others=0)}
    assert reader.read() == {PLACE: Card(use=0.5, temperature=40.0, others=0)}
    assert nvml.num_begun == 2
    assert cards(None).read() == {}, "no package"


def test_figures_that_a_card_does_not_know() -> None:
    nvml = Nvml(
        nvmlDeviceGetUtilizationRates=refuse,
        nvmlDeviceGetTemperature=refuse,
        nvmlDeviceGetComputeRunningProcesses=refuse,
    )
    assert cards(nvml).read() == {PLACE: Card()}
    assert cards(Nvml(nvmlDeviceGetHandleByIndex=refuse)).read() == {}
    assert cards(Nvml(nvmlInit=mismatch)).read() == {}


def test_what_others_have(tmp_path: Path) -> None:
    """The agent's other engine processes, which have the same parent, are none."""
    nvml = Nvml()
    for pid, parent in ((4001, os.getppid()), (4002, os.getppid() + 1)):
        stat = tmp_path / f"proc/{pid}/stat"
        stat.parent.mkdir(parents=True)
        stat.write_text(f"{pid} (a (b) c) S {parent} 1 1")
    nvml.processes += [SimpleNamespace(pid=pid, usedGpuMemory=pid) for pid in (4001, 4002, 4003)]
    assert cards(nvml, tmp_path).read()[PLACE].others == 4002 + 4003
    nvml.processes[-1].usedGpuMemory = None
    assert cards(nvml, tmp_path).read()[PLACE].others is None, "it does not tell how much"
    del nvml.processes[0]
    assert cards(nvml, tmp_path).read()[PLACE].others is None, "whose numbers are these?"
    assert is_of_this_agent(4001, tmp_path) and not is_of_this_agent(4002, tmp_path)


@pytest.fixture
def released() -> Iterator[Event]:
    event = Event()
    yield event
    event.set()


def test_a_card_that_hangs_is_waited_for_once(released: Event) -> None:
    asked: list[int] = []

    def hang() -> int:
        asked.append(1)
        released.wait(HANGS)
        return 1

    reader = NvidiaCards(lambda: Nvml(nvmlDeviceGetCount=hang), patience=0.01)
    assert reader.read() == {}
    reader._patience = HANGS  # of a reading that was waited for, this test would hang
    assert reader.read() == {}
    assert len(asked) <= 1
    reading = reader._reading
    assert reading is not None
    released.set()
    reading.result(HANGS)
    assert reader.read().keys() == {PLACE}, "it answers again"


def test_places_on_the_bus() -> None:
    assert bus_place(b"00000000:C1:00.0") == "0000:c1:00.0"
    assert bus_place("00010000:0A:00.1") == "10000:0a:00.1"
