"""The choice of kernels, with checks that are sound, differ, die or never end."""

import json
import logging
import sys
from pathlib import Path

import pytest

from arriero.agent.engine.llama.kernels import kernels
from arriero.agent.engine.llama.kernels.kernels import choose


def check(code: str) -> tuple[str, ...]:
    """A check that runs `code` in a process of its own."""
    return (sys.executable, "-c", code)


def verdict(*, is_sound: bool, reason: str = "") -> tuple[str, ...]:
    return check(f"print({json.dumps({'is_sound': is_sound, 'reason': reason})!r})")


SOUND = verdict(is_sound=True)
DYING = check("import os; os.kill(os.getpid(), 11)")
UNENDING = check("import time; time.sleep(60)")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_sound_check_means_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (verdict(is_sound=False, reason="they differ"), "they differ"),
        (DYING, "ended by SIGSEGV"),
        (check("raise RuntimeError('no batch')"), "code 1: RuntimeError: no batch"),
        (("/no/such/program",), "could not start"),
        (check("print('junk')"), "is no verdict: 'junk"),
    ],
)
def test_a_check_that_fails_means_plain_and_says_why(
    broken: tuple[str, ...], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose("auto", folder=tmp_path, check=broken) == "plain"
    [warning] = warnings(caplog)
    assert reason in warning


def test_a_check_that_never_ends_means_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "TIMEOUT", 0.2)
    assert choose("auto", folder=tmp_path, check=UNENDING) == "plain"
    assert "did not end" in caplog.text


def test_the_answer_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert choose("auto", folder=tmp_path, check=DYING) == "plain"
    caplog.clear()
    assert choose("auto", folder=tmp_path, check=SOUND) == "plain"
    assert "SIGSEGV" in caplog.text
    assert choose("auto", folder=tmp_path / "other", check=SOUND) == "all"


@pytest.mark.parametrize(
    "broken",
    [
        check("import os; os.kill(os.getpid(), 9)"),
        check("raise OSError('no space left')"),
        check("print('junk')"),
        ("/no/such/program",),
    ],
)
def test_a_failure_that_says_nothing_of_kernels_is_not_kept(
    broken: tuple[str, ...], tmp_path: Path
) -> None:
    assert choose("auto", folder=tmp_path, check=broken) == "plain"
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"


def test_libraries_from_elsewhere_are_tried_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose("auto", folder=tmp_path, check=DYING)
    (tmp_path / "libggml-cpu.so").write_bytes(b"another")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path / "nowhere"))
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"


def test_another_processor_is_tried_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("auto", folder=tmp_path, check=DYING)
    monkeypatch.setattr(kernels, "_processor", lambda: "another")
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"


@pytest.mark.parametrize("junk", ["", "[]", "{}", json.dumps({"reason": 3}), "\xff"])
def test_a_kept_answer_that_cannot_be_read_is_made_anew(junk: str, tmp_path: Path) -> None:
    choose("auto", folder=tmp_path, check=DYING)
    [kept] = tmp_path.iterdir()
    kept.write_text(junk, encoding="latin-1")
    assert choose("auto", folder=tmp_path, check=SOUND) == "all"


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert choose("auto", folder=file / "below", check=SOUND) == "all"


def test_a_user_may_choose(tmp_path: Path) -> None:
    assert choose("all", folder=tmp_path, check=DYING) == "all"
    assert choose("plain", folder=tmp_path, check=SOUND) == "plain"
    assert not list(tmp_path.iterdir())
