"""Locks between processes."""

import subprocess
import sys
import threading
from pathlib import Path

from arriero.agent.models.file_lock import FileLock
from tests.waiting import HANGS

HOLD = """
import sys
from pathlib import Path
from arriero.agent.models.file_lock import FileLock
lock = FileLock.exclusive(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_many_share_a_lock_that_one_alone_cannot_have_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock.shared(path), FileLock.shared(path):
        assert FileLock.try_exclusive(path) is None
    alone = FileLock.try_exclusive(path)
    assert alone is not None
    alone.release()


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert FileLock.try_exclusive(path) is None
        holder.kill()
        holder.wait(HANGS)
        alone = FileLock.try_exclusive(path)
        assert alone is not None
        alone.release()


def test_who_waited_for_an_unlinked_lock_locks_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    old = FileLock.exclusive(path)
    taken: list[FileLock] = []
    waiter = threading.Thread(target=lambda: taken.append(FileLock.shared(path)))
    waiter.start()
    path.unlink()
    old.release()
    waiter.join(HANGS)

    assert path.exists()
    assert FileLock.try_exclusive(path) is None
    taken[0].release()


def test_release_twice_does_nothing(tmp_path: Path) -> None:
    lock = FileLock.exclusive(tmp_path / "lock")
    lock.release()
    lock.release()
    lock.touch()
    with FileLock.exclusive(tmp_path / "lock"):
        pass
