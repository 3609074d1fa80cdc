"""A wall clock that can be wrong: a small library, preloaded into the daemons of a run."""

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("wrong_clock.c")
NANOSECONDS = 1_000_000_000


def has_compiler() -> bool:
    """Whether the library can be built here."""
    return shutil.which("cc") is not None


@dataclass(frozen=True, slots=True)
class Clock:
    """That of all daemons that are started with its environment; its files are in `folder`."""

    folder: Path

    def build(self) -> None:
        """Raises `subprocess.CalledProcessError`."""
        self.set_wrong_by(0.0)
        flags = ("-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl")
        subprocess.run(("cc", *flags), check=True, capture_output=True)

    def set_wrong_by(self, seconds: float) -> None:
        """From now on, for all daemons."""
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(struct.pack("=q", round(seconds * NANOSECONDS)))

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the daemons are started with."""
        return {"LD_PRELOAD": str(self._library), "ARRIERO_CHAOS_CLOCK": str(self._offset)}

    @property
    def _library(self) -> Path:
        return self.folder / "wrong_clock.so"

    @property
    def _offset(self) -> Path:
        return self.folder / "clock"
