"""The runs of all tests: one in which a worker died fails, whatever comes after."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANGS

ROOT = Path(__file__).parents[1]

PASSING = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_that_passes(number):
    pass
"""

KILLED = """
import os, signal

def test_before():
    pass

def test_that_kills():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after():
    pass
"""

DIES_BETWEEN_TWO = """
import os, signal

def pytest_runtest_logfinish(nodeid):
    if "PYTEST_XDIST_WORKER" in os.environ and nodeid.endswith("test_0.py::test_that_passes[1]"):
        os.kill(os.getpid(), signal.SIGKILL)
"""

DIES_WITH_NOTHING_TO_DO = """
import os, signal

def pytest_sessionfinish():
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        os.kill(os.getpid(), signal.SIGKILL)
"""

USES_LLAMA_CPP = """
import atexit
from llama_cpp import _utils

@atexit.register
def tell():
    print("closed:", _utils.outnull_file.closed, _utils.errnull_file.closed)

def test_that_passes():
    pass
"""


def environment() -> dict[str, str]:
    """Without what the runs that this one is a part of say of themselves."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "MAKE", "MFLAGS"))
    }


def command(num_workers: int) -> list[str]:
    """As `make daemon-tests` runs pytest, with this interpreter and fewer workers."""
    made = subprocess.run(
        ["make", "-n", "--no-print-directory", "daemon-tests", f"jobs={num_workers}"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    [line] = [line for line in made.stdout.splitlines() if "pytest -q -n" in line]
    return [sys.executable, *shlex.split(line)[1:]]


def run(folder: Path, *, num_workers: int = 2, **files: str) -> tuple[int, str]:
    """The exit code and the output of a run of these tests, beside three files that pass."""
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "integration_tests").mkdir()
    passing = {f"test_{number}": PASSING for number in range(3)}
    for name, text in {**passing, **files}.items():
        (folder / "integration_tests" / f"{name}.py").write_text(text)
    done = subprocess.run(
        command(num_workers),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * HANGS,
    )
    return done.returncode, done.stdout


def test_a_run_in_which_all_is_well(tmp_path: Path) -> None:
    code, output = run(tmp_path)
    assert (code, "9 passed" in output, "not whole" in output) == (0, True, False), output


def test_what_llama_cpp_opens_is_closed_at_the_end(tmp_path: Path) -> None:
    """Without workers: one that is slow to end may be killed before it could tell."""
    code, output = run(tmp_path, num_workers=0, test_3=USES_LLAMA_CPP)
    assert (code, output.splitlines()[-1]) == (0, "closed: True True"), output


def test_a_test_that_kills_its_worker(tmp_path: Path) -> None:
    code, output = run(tmp_path, test_killed=KILLED)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "crashed while running 'integration_tests/test_killed.py::test_that_kills'" in output
    assert "died: Not properly terminated" in output
    assert "no result of integration_tests/test_killed.py::test_after" in output


def test_a_worker_that_dies_between_two_tests(tmp_path: Path) -> None:
    code, output = run(tmp_path, conftest=DIES_BETWEEN_TWO)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "died: Not properly terminated" in output


def test_a_worker_that_dies_with_nothing_to_do(tmp_path: Path) -> None:
    """All that was to be seen passed."""
    code, output = run(tmp_path, conftest=DIES_WITH_NOTHING_TO_DO)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "9 passed" in output
    assert "<WorkerController gw0> died: Not properly terminated" in output
