import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from arriero.agent.gpus import DEADLINE, LONGEST_NAME, gpus, has_gpu_backend, read
from arriero.shared.models.assignments import Device
from tests.waiting import given_time, until

ONE = b'[{"name": "CUDA0", "description": "NVIDIA H100", "memory": 80, "free": 70}]'


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
    assert await gpus(tmp_path, says("raise SystemExit(1)")) == ()


async def test_what_llama_cpp_says(built_for_gpus: Path) -> None:
    found = await gpus(built_for_gpus, says(f"print('noise'); print({ONE.decode()!r})"))
    assert found == (Device(name="CUDA0", description="NVIDIA H100", memory=80),)


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "print('no JSON')", "print('[{}]')", "pass"]
)
async def test_a_driver_that_fails_costs_nothing_but_a_warning(
    built_for_gpus: Path, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    assert await gpus(built_for_gpus, says(code)) == ()
    assert "cannot say which GPUs there are" in caplog.text


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
        assert await asked == ()
    assert "cannot say" in caplog.text
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.readlink().name), 0)


def test_a_long_name_is_cut() -> None:
    one = {"name": "x" * 300, "description": "y" * 300, "memory": 1, "free": 1}
    [device] = read(json.dumps([one]).encode())
    assert (len(device.name), len(device.description)) == (LONGEST_NAME, LONGEST_NAME)
