import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from arriero.agent.gpus import DEADLINE, LONGEST_NAME, Gpus, gpus, has_gpu_backend, idle_memory
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Device
from arriero.shared.reports.statistics import DeviceMemory
from tests.waiting import given_time, until

DEVICE = {"name": "CUDA0", "description": "NVIDIA H100", "memory": 80, "free": 70}
PROBLEM = {"message": "it does not load", "hint": "mend it", "is_unusable": True}


@pytest.fixture
def built_for_gpus(tmp_path: Path) -> Path:
    (tmp_path / "libggml-cuda.so").touch()
    return tmp_path


def says(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    "name", ["libggml-cuda.so", "libggml-vulkan.so.0", "ggml-hip.dll", "libggml-metal.dylib"]
)
def test_a_build_for_gpus(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert has_gpu_backend(tmp_path)


def test_a_build_for_processors(tmp_path: Path) -> None:
    for name in ("libggml.so", "libggml-base.so.0", "libggml-cpu.so", "libggml-cpu-haswell.so"):
        (tmp_path / name).touch()
    assert not has_gpu_backend(tmp_path)


async def test_a_build_for_processors_is_not_asked(tmp_path: Path) -> None:
    assert await gpus(tmp_path, says("raise SystemExit(1)"), makers=tuple) == Gpus()


async def test_libraries_that_are_named_are_those_that_are_looked_at(
    built_for_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name that llama-cpp-python goes by."""
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(built_for_gpus))
    [device] = (await gpus(program=finds([DEVICE], []), makers=tuple)).devices
    assert device.name == "CUDA0"


def finds(devices: list[Any], problems: list[Any]) -> list[str]:
    text = json.dumps({"devices": devices, "cpu": None, "problems": problems})
    return says(f"print('noise'); print({text!r})")


async def test_what_llama_cpp_says(built_for_gpus: Path) -> None:
    found = await gpus(built_for_gpus, finds([DEVICE], []))
    assert found == Gpus((Device(name="CUDA0", description="NVIDIA H100", memory=80),))


async def test_a_backend_that_cannot_be_used(
    built_for_gpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [issue] = (await gpus(built_for_gpus, finds([], [PROBLEM]))).issues
    assert issue == Issue(code="backend_unusable", message="it does not load", hint="mend it")
    assert "it does not load" in caplog.text


async def test_where_the_cpu_should_compute_that_is_no_problem(
    built_for_gpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await gpus(built_for_gpus, finds([], [PROBLEM]), are_wanted=False) == Gpus()
    assert "it does not load" not in caplog.text


async def test_a_gpu_without_a_backend_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = finds([], [PROBLEM | {"is_unusable": False}])
    assert await gpus(tmp_path, program, makers=lambda: ("NVIDIA",)) == Gpus()
    assert "it does not load" in caplog.text


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "print('no JSON')", "print('[{}]')", "pass", "print('{}')"]
)
async def test_a_driver_that_fails_costs_nothing_but_a_warning(
    built_for_gpus: Path, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    assert await gpus(built_for_gpus, says(code)) == Gpus()
    assert "could not be asked for GPUs" in caplog.text


async def test_a_driver_that_hangs_is_left_alone(
    built_for_gpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And its process is ended."""
    begun = tmp_path / "begun"
    hangs = says(
        "import os, pathlib, threading;"
        f"pathlib.Path({str(begun)!r}).symlink_to(str(os.getpid()));"
        "threading.Event().wait()"
    )
    async with given_time() as time:
        asked = asyncio.create_task(gpus(built_for_gpus, hangs))
        await until(begun.is_symlink)
        await time.passes(DEADLINE - 1.0)
        assert not asked.done()
        await time.passes(1.0)
        assert await asked == Gpus()
    assert "could not be asked" in caplog.text
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.readlink().name), 0)


async def test_a_long_name_is_cut(built_for_gpus: Path) -> None:
    one = DEVICE | {"name": "x" * 300, "description": "y" * 300}
    [device] = (await gpus(built_for_gpus, finds([one], []))).devices
    assert (len(device.name), len(device.description)) == (LONGEST_NAME, LONGEST_NAME)


async def test_the_memory_of_a_host_without_an_engine(caplog: pytest.LogCaptureFixture) -> None:
    here = (Device(name="CUDA0", memory=80),)
    told = DEVICE | {"kind": "gpu"}
    other = told | {"name": "CUDA1"}
    host, card = await idle_memory(here, finds([told, other], []))
    assert (host.name, host.kind) == ("CPU", "cpu")
    assert 0 < host.free <= host.total
    assert card == DeviceMemory(name="CUDA0", kind="gpu", total=80, free=70)
    assert await idle_memory((), says("raise SystemExit(1)")) == (replace(host, free=ANY),), (
        "nobody is asked where there is no GPU"
    )
    [alone] = await idle_memory(here, says("raise SystemExit(1)"))
    assert alone.name == "CPU"
    assert "the memory of GPUs could not be measured" in caplog.text
