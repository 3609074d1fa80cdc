"""The engine's portable wheel: what it is built with, and what is left out of it."""

import shlex
import zipfile
from pathlib import Path

import pytest

from release.engine_wheel import BACKENDS, cmake_arguments, slimmed, version

NAME = "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
INFO = "llama_cpp_python-0.3.36.dist-info"
LEFT_OUT = (
    "include/llama.h",
    "llama_cpp/lib/cmake/ggml/ggml-config.cmake",
    "llama_cpp/lib/libggml.so.0.25.3",
    "llama_cpp/lib/libllama-common.so.0",
)
KEPT = (
    "llama_cpp/__init__.py",
    "llama_cpp/lib/libggml.so",
    "llama_cpp/lib/libggml.so.0",
    "llama_cpp/lib/libggml-cpu-haswell.so",
)


def test_every_kind_of_processor_and_sound_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    words = shlex.split(cmake_arguments(BACKENDS["cuda"], "Linux"))
    assert {"-DGGML_CPU_ALL_VARIANTS=on", "-DGGML_BACKEND_DL=on", "-DGGML_CUDA=on"} < set(words)
    assert "-DCMAKE_C_FLAGS=-fno-dse -frecord-gcc-switches" in words
    assert "-DCMAKE_INSTALL_RPATH=$ORIGIN" in words


def test_macs_have_one_kind_of_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    words = shlex.split(cmake_arguments(BACKENDS["metal"], "Darwin"))
    assert "-DGGML_METAL=on" in words
    assert not {"-DGGML_CPU_ALL_VARIANTS=on", "-fno-dse"} & set(words)


def test_what_a_user_sets_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_RPC=off '-DX=a b'")
    words = shlex.split(cmake_arguments(BACKENDS["cpu"], "Linux"))
    assert words[-2:] == ["-DGGML_RPC=off", "-DX=a b"]


def test_the_pinned_version() -> None:
    assert version() in (Path(__file__).parents[2] / "constraints.txt").read_text()


def test_what_nothing_loads_is_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / NAME
    with zipfile.ZipFile(wheel, "w") as file:
        for name in (*LEFT_OUT, *KEPT):
            file.writestr(name, name)
        file.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n\n")
        file.writestr(f"{INFO}/RECORD", "include/llama.h,,\n")
    (tmp_path / "slim").mkdir()
    slim = slimmed(wheel, tmp_path / "slim", "1cpu")
    assert slim.name == "llama_cpp_python-0.3.36-1cpu-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(slim) as file:
        assert set(file.namelist()) == {*KEPT, f"{INFO}/WHEEL", f"{INFO}/RECORD"}
        assert "Build: 1cpu" in file.read(f"{INFO}/WHEEL").decode().splitlines()
        record = file.read(f"{INFO}/RECORD").decode().splitlines()
    names = [line.split(",")[0] for line in record]
    assert names == [*KEPT, f"{INFO}/WHEEL", f"{INFO}/RECORD"]
    assert record[0].split(",")[1].startswith("sha256=")
