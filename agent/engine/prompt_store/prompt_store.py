"""Stored prompts by key: one file each, in the folder of `--cache-dir`.

A file that vanishes during a look-up counts as absent. Problems with a file are returned and
logged, never raised. Loading and saving block, so the engine's thread does neither.
"""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ....shared.inference import Notice
from .cache_folder import PROMPT_SUFFIX, CacheFolder
from .stored_prompt import Origin, StoredPrompt, UnusableFile, pack, unpack

logger = logging.getLogger(__name__)

_NAME_BYTES = 24


@dataclass(frozen=True, slots=True)
class Ignored:
    """A prompt could not be loaded or saved; `reason` says why, for the client."""

    reason: str

    @property
    def notice(self) -> Notice:
        """The notice for the client."""
        return Notice("prompt_cache", self.reason)


class PromptStore:
    """Prompts computed by `origin`, in `folder`."""

    def __init__(self, folder: CacheFolder, *, origin: Origin) -> None:
        self._folder = folder
        self._origin = origin

    def load(self, key: str, scope: str | None = None) -> StoredPrompt | Ignored | None:
        """Return the prompt stored under `key` in `scope`; `None` if nothing is stored there."""
        full_key = _full_key(key, scope)
        path = self._path(full_key)
        try:
            return self._read(path, full_key, scope)
        except FileNotFoundError:
            return None
        except UnusableFile as error:
            return ignored(f"prompt cache file {path.name} {error}; it is ignored")
        except OSError as error:
            return ignored(f"prompt cache file {path.name} cannot be read: {error.strerror}")

    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        """Store `prompt` under `key`, replacing an earlier prompt. Returns `None` on success.

        Only requests of the prompt's scope find it.
        """
        full_key = _full_key(key, prompt.prompt.scope)
        parts = pack(full_key, self._origin, prompt)
        size = sum(map(len, parts))
        if size > self._folder.limit_bytes:
            return ignored(
                f"the prompt takes {size} bytes and is not saved: the limit of the whole cache is "
                f"{self._folder.limit_bytes} (--cache-limit)"
            )
        path = self._path(full_key)
        try:
            self._folder.save(path, parts)
        except OSError as error:
            return ignored(f"prompt cache file {path.name} cannot be saved: {error.strerror}")
        return None

    def _path(self, key: str) -> Path:
        name = blake2b(key.encode(), digest_size=_NAME_BYTES).hexdigest()
        return self._folder.path / f"{name}{PROMPT_SUFFIX}"

    def _read(self, path: Path, key: str, scope: str | None) -> StoredPrompt:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._folder.limit_bytes:
                raise UnusableFile(f"has {size} bytes, more than the limit of the whole cache")
            prompt = unpack(file, size, key=key, origin=self._origin, scope=scope)
            with suppress(OSError):  # it is another user's: it merely looks unused
                os.utime(file.fileno())
        return prompt


def _full_key(key: str, scope: str | None) -> str:
    return key if scope is None else f"{scope}\0{key}"


def ignored(reason: str) -> Ignored:
    """Log `reason` and return it for the client."""
    logger.warning("%s", reason)
    return Ignored(reason)
