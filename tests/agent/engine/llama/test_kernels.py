"""The choice of kernels, by what builds of llama.cpp say of themselves."""

import logging
from pathlib import Path

import pytest

from arriero.agent.engine.llama.kernels import choose

PLAIN_BUILD = "CPU : SSE3 = 1 | AVX512 = 1 | REPACK = 1 | "
WITH_AMX = "CPU : SSE3 = 1 | AVX512 = 1 | AMX_INT8 = 1 | REPACK = 1 | "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build's libraries, which say nothing of how they were built."""
    (tmp_path / "libllama.so").write_bytes(b"\x7fELF GNU C++17 -fno-dse")
    (tmp_path / "libggml-cpu.so").write_bytes(b"\x7fELF" + bytes(100))
    return tmp_path


def test_all_are_used_where_none_are_for_amx(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose("auto", system=PLAIN_BUILD, folder=folder) == "all"
    assert not caplog.records


def test_the_plain_ones_are_used_where_amx_may_be_broken(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose("auto", system=WITH_AMX, folder=folder) == "plain"
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "-fno-dse" in warning.getMessage()
    assert "--kernels all" in warning.getMessage()


def test_all_are_used_where_the_library_says_that_amx_is_mended(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "libggml-cpu.so").write_bytes(b"\x7fELF GNU C++17 -O3 -fno-dse\x00" + bytes(100))
    assert choose("auto", system=WITH_AMX, folder=folder) == "all"
    assert not caplog.records


@pytest.mark.parametrize("choice", ["all", "plain"])
def test_what_was_chosen_is_used_without_a_look(choice: str, folder: Path) -> None:
    assert choose(choice, system=WITH_AMX, folder=folder) == choice  # type: ignore[arg-type]


def test_the_library_of_this_machine_is_looked_at() -> None:
    assert choose("auto") in ("all", "plain")
