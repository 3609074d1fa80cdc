"""A disk of a few megabytes: a file system in memory, in a namespace of a process of ours."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import HANGS

_HOLD = 'mount -t tmpfs -o "$1" none "$2" && echo mounted && exec cat'


class NoNamespaces(Exception):
    """This system gives no namespaces to its users."""


@contextmanager
def small_disk(at: Path, options: str = "size=3m") -> Iterator[Path]:
    """A path into a file system mounted with `options`. It goes with the process that holds it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise NoNamespaces("there is no unshare")
    at.mkdir()
    command = [unshare, "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh", options, str(at)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != b"mounted\n":
                raise NoNamespaces(holder.stderr.read().decode())
            yield Path(f"/proc/{holder.pid}/root") / at.relative_to("/")
        finally:
            holder.kill()
            holder.wait(HANGS)


def fill(disk: Path) -> Path:
    """A file that takes all that the disk has left."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        pass
    return filler
