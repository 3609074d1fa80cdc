"""What tests need and pip does not install: found, or installed, by a script of `scripts`."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


@cache
def installed(name: str) -> str:
    """What `scripts/install-{name}` says of where it is, once it is there.

    Skips the test where it is not and cannot be installed; fails it in CI, and for root, who can.
    """
    script = SCRIPTS / f"install-{name}"
    with _turn():
        found = subprocess.run([script], capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return found.stdout.strip()
    reason = (found.stderr.strip().splitlines() or ["it says nothing"])[-1]
    if os.environ.get("CI") or os.geteuid() == 0:
        pytest.fail(f"{script.name}: {reason}")
    pytest.skip(reason)


@contextmanager
def _turn() -> Iterator[None]:
    """One script at a time: a second apt-get gives up while a first one installs."""
    folder = os.open(SCRIPTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
