"""One fetch from beginning to end: locate, make room, wait for others, download, hand out."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from ....shared.models.sources import LocalFile, WebFile, parse_source
from ..download.downloader import TIMEOUT, Downloader
from ..download.progress import Progress, Tell
from ..download.refusals import broken
from ..download.remote_file import RemoteFile
from ..folder.checksum import sha256_of
from ..folder.file_lock import FileLock
from ..folder.models_folder import ModelsFolder, part_of
from ..folder.record import Record
from . import local, web
from .located import Located

LOOK_EVERY = 0.5
"""Seconds between looks at a file that another agent downloads: for its size, and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A model's files, all here. `kept` are those that must be leased."""

    paths: tuple[Path, ...]
    kept: tuple[Path, ...]
    bytes: int


@contextmanager
def fetched(
    source: str,
    sha256: str | None,
    folder: ModelsFolder,
    *,
    tell: Tell,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Found]:
    """The files of `source`, here. Inside the block they are not evicted. Raises `FetchError`."""
    with ExitStack() as held:
        try:
            found = _fetch(source, sha256, folder, held=held, tell=tell, sleep=sleep)
        except OSError as error:
            raise broken(error, folder.root) from error
        yield found


def _fetch(
    source: str,
    sha256: str | None,
    folder: ModelsFolder,
    *,
    held: ExitStack,
    tell: Tell,
    sleep: Callable[[float], None],
) -> Found:
    parsed = parse_source(source)
    if isinstance(parsed, LocalFile):
        return _found(local.locate(parsed, sha256))
    folder.create()
    if isinstance(parsed, WebFile):
        located = web.locate(parsed, sha256, folder)
        _bring(located, folder, held, tell, sleep)
        return _found(located)
    # Its import takes half a second, which other sources need not wait for.
    from . import hub

    located = hub.locate(parsed, sha256, folder)
    _bring(located, folder, held, tell, sleep)
    hub.finish(parsed, located)
    return _found(located)


def _found(located: Located) -> Found:
    size = sum(path.stat().st_size for path in located.paths)
    return Found(paths=located.paths, kept=located.kept, bytes=size)


def _bring(
    located: Located,
    folder: ModelsFolder,
    held: ExitStack,
    tell: Tell,
    sleep: Callable[[float], None],
) -> None:
    """Lease all files, and download those that are missing."""
    for file in located.kept:
        held.enter_context(folder.use(file))
    progress = Progress(tell, time.monotonic)
    with httpx2.Client(timeout=TIMEOUT) as client:
        bringer = _Bringer(folder, Downloader(folder, client, progress, sleep), progress, sleep)
        bringer.bring(located.remotes)


class _Bringer:
    """Downloads what is missing, one file after the other, each in one process at a time."""

    def __init__(
        self,
        folder: ModelsFolder,
        downloader: Downloader,
        progress: Progress,
        sleep: Callable[[float], None],
    ) -> None:
        self._folder = folder
        self._downloader = downloader
        self._progress = progress
        self._sleep = sleep

    def bring(self, remotes: tuple[RemoteFile, ...]) -> None:
        sizes = [remote.size for remote in remotes]
        if all(size is not None for size in sizes):
            self._progress.expect(sum(size or 0 for size in sizes))
        self._make_room(remotes)
        for remote in remotes:
            if not self._is_here(remote):
                self._bring_one(remote)
            self._progress.whole(remote.file.stat().st_size)

    def _make_room(self, remotes: tuple[RemoteFile, ...]) -> None:
        """For all files together, so that the first is not downloaded in vain."""
        missing = {
            remote.file: remote.size
            for remote in remotes
            if remote.size is not None and not remote.file.exists()
        }
        if missing:
            self._folder.make_room(missing)

    def _bring_one(self, remote: RemoteFile) -> None:
        with self._turn(remote):
            if not self._is_here(remote) and not self._is_right(remote):
                self._downloader.download(remote)

    def _turn(self, remote: RemoteFile) -> FileLock:
        """Wait until no other process downloads `remote`, and tell how far it is meanwhile."""
        lock = self._folder.fetch_lock(remote.file)
        while (turn := FileLock.try_exclusive(lock)) is None:
            total = self._folder.record(remote.file).total
            self._progress.arrived(remote.called, _size(part_of(remote.file)), total)
            self._sleep(LOOK_EVERY)
        return turn

    def _is_here(self, remote: RemoteFile) -> bool:
        if not remote.file.exists():
            return False
        if remote.is_content_named or remote.sha256 is None:
            return True
        return self._folder.record(remote.file).sha256 == remote.sha256

    def _is_right(self, remote: RemoteFile) -> bool:
        """Whether a file that was never hashed is the right one. The turn is held."""
        if not remote.file.exists() or self._folder.record(remote.file).sha256 is not None:
            return False
        record = Record(sha256=sha256_of(remote.file), size=_size(remote.file))
        self._folder.write_record(remote.file, record)
        return record.sha256 == remote.sha256


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
