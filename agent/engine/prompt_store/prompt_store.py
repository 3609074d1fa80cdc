"""Stored prompts in a folder: one file a key, the least recently used removed first.

Several agents may share the folder. A file appears whole or not at all (it is written beside and
renamed), one that vanishes during a look-up counts as absent, and what is wrong with one is
returned and logged, never raised. Loading and saving block: they belong on a preparation thread.

Invariant: after a save the folder's prompts, unfinished ones included, take at most the limit.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile

from ....shared.inference import Notice
from .stored_prompt import Origin, State, StoredPrompt, UnusableFile, pack, unpack

logger = logging.getLogger(__name__)

SUFFIX = ".prompt"
UNFINISHED_SUFFIX = ".part"
_NAME_BYTES = 24


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing was loaded, or nothing saved, and why; for the client."""

    reason: str

    @property
    def notice(self) -> Notice:
        """What is reported to the client."""
        return Notice("prompt_cache", self.reason)


@dataclass(frozen=True, slots=True)
class _File:
    used_at: int  # nanoseconds
    path: Path
    size: int


def write_whole(path: Path, parts: tuple[State, ...]) -> None:
    """Write `path` beside its place and rename it there, once it is on disk. Raises `OSError`."""
    with NamedTemporaryFile(
        dir=path.parent, prefix=path.stem, suffix=UNFINISHED_SUFFIX, delete=False
    ) as file:
        unfinished = Path(file.name)
        try:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    with suppress(OSError):  # the file is there; not every file system can promise more
        _sync(path.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class PromptStore:
    """Prompts that `origin` computed, in `folder`, at most `limit_bytes` of them."""

    def __init__(
        self,
        folder: Path,
        *,
        limit_bytes: int,
        origin: Origin,
        write: Callable[[Path, tuple[State, ...]], None] = write_whole,
    ) -> None:
        """Make the folder where there is none. Raises `OSError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write = write
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._origin = origin

    def load(self, key: str) -> StoredPrompt | Ignored | None:
        """What is stored under `key`; `None` where nothing is."""
        path = self._path(key)
        try:
            return self._read(path, key)
        except FileNotFoundError:
            return None
        except UnusableFile as error:
            return ignored(f"prompt cache file {path.name} {error}; it is ignored")
        except OSError as error:
            return ignored(f"prompt cache file {path.name} cannot be read: {error.strerror}")

    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        """Store `prompt` under `key`, in place of what was there; `None` when it is done."""
        parts = pack(key, self._origin, prompt)
        size = sum(map(len, parts))
        if size > self._limit_bytes:
            return ignored(
                f"the prompt takes {size} bytes and is not saved: the whole cache may take "
                f"{self._limit_bytes} (--cache-limit)"
            )
        path = self._path(key)
        try:
            self._make_room(size, but=path)
            self._write(path, parts)
            self._make_room(size, but=path)  # another agent may have saved meanwhile
        except OSError as error:
            return ignored(f"prompt cache file {path.name} cannot be saved: {error.strerror}")
        return None

    def _path(self, key: str) -> Path:
        return (
            self._folder / f"{blake2b(key.encode(), digest_size=_NAME_BYTES).hexdigest()}{SUFFIX}"
        )

    def _read(self, path: Path, key: str) -> StoredPrompt:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._limit_bytes:
                raise UnusableFile(f"takes {size} bytes, more than the whole cache may")
            prompt = unpack(file, size, key=key, origin=self._origin)
            with suppress(OSError):  # it is another user's: it merely looks unused
                os.utime(file.fileno())
        return prompt

    def _make_room(self, size: int, *, but: Path) -> None:
        """Remove files until the others than `but` leave room for its `size`."""
        files = sorted(
            (file for file in self._files() if file.path != but),
            key=lambda file: (file.used_at, file.path),
        )
        excess = sum(file.size for file in files) + size - self._limit_bytes
        for file in files:
            if excess <= 0:
                return
            file.path.unlink(missing_ok=True)
            excess -= file.size

    def _files(self) -> Iterator[_File]:
        for path in self._folder.iterdir():
            if path.suffix in (SUFFIX, UNFINISHED_SUFFIX):
                try:
                    stat = path.stat()
                except FileNotFoundError:  # another agent removed it
                    continue
                yield _File(stat.st_mtime_ns, path, stat.st_size)


def ignored(reason: str) -> Ignored:
    """Say so in the log, too."""
    logger.warning("%s", reason)
    return Ignored(reason)
