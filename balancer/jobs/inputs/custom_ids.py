"""Finds custom ids that are there twice, in as much memory for many as for few.

Digests go to files, told apart by their first bits, and each file is looked at alone. Two ids with
one digest of 64 bits would count as the same: of ten million ids that is one case in 300,000.
"""

import shutil
import struct
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

NUM_PARTS = 64

_PAIR = struct.Struct("<QQ")


class CustomIds:
    """A context manager that deletes its `folder`. `add` all ids, then ask for `repeated`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = ExitStack()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        paths = [self._folder / str(part) for part in range(NUM_PARTS)]
        self._parts = [self._files.enter_context(path.open("wb")) for path in paths]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, custom_id: str, line: int) -> None:
        """The id of a line."""
        digest = int.from_bytes(blake2b(custom_id.encode(), digest_size=8).digest(), "little")
        self._parts[digest % NUM_PARTS].write(_PAIR.pack(digest, line))

    def repeated(self, most: int) -> list[int]:
        """Lines whose id an earlier line has: some of them, at most `most`, in their order."""
        self._files.close()
        found: list[int] = []
        for part in range(NUM_PARTS):
            seen: set[int] = set()
            with (self._folder / str(part)).open("rb") as file:
                while block := file.read(_PAIR.size * 4096):
                    for digest, line in _PAIR.iter_unpack(block):
                        if digest in seen and len(found) < most * NUM_PARTS:
                            found.append(line)
                        seen.add(digest)
        return sorted(found)[:most]
