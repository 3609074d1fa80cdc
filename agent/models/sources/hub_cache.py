"""The layout of huggingface-hub's cache: finding files in it, and adding to it.

`snapshots/COMMIT/FILE` are links to `blobs/ETAG`; `refs/REVISION` holds a commit.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


class RepoCache:
    """One repository's folder in a cache."""

    def __init__(self, cache: Path, repo: str) -> None:
        self.root = cache / f"models--{repo.replace('/', '--')}"

    def commit_of(self, revision: str) -> str | None:
        """The commit that `revision` was last seen at."""
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            return (self.root / "refs" / revision).read_text().strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self, commit: str) -> list[str]:
        """The GGUF files that are here of `commit`."""
        snapshot = self._snapshot(commit)
        found = (path for path in snapshot.rglob("*.gguf") if path.is_file())
        return [path.relative_to(snapshot).as_posix() for path in found]

    def has(self, commit: str, names: Iterable[str]) -> bool:
        return all(self.path(commit, name).is_file() for name in names)

    def path(self, commit: str, name: str) -> Path:
        return self._snapshot(commit) / name

    def blob(self, etag: str) -> Path:
        return self.root / "blobs" / etag

    def add(self, commit: str, name: str, blob: Path) -> None:
        """Let `commit` have `blob` as its file `name`. Raises `OSError`."""
        link = self.path(commit, name)
        if link.is_file() and link.resolve() == blob.resolve():
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(f"{link.name}.{os.getpid()}.link")
        beside.unlink(missing_ok=True)
        beside.symlink_to(os.path.relpath(blob, link.parent))
        beside.replace(link)

    def remember(self, revision: str, commit: str) -> None:
        """From now on `revision` is at `commit`. Raises `OSError`."""
        if revision == commit:
            return
        ref = self.root / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        beside = ref.with_name(f"{ref.name}.{os.getpid()}.ref")
        beside.write_text(commit)
        beside.replace(ref)

    def _snapshot(self, commit: str) -> Path:
        return self.root / "snapshots" / commit
