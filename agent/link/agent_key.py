"""The access key with which an agent dials, read anew for each dial: so it can be changed.

It comes from a file or from the environment, never from the command line, which every user of a
host can see.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from .dialling import DialFailed

VARIABLE = "ARRIERO_AGENT_KEY"

LONGEST = 512


class AgentKey:
    """Where the key comes from: the file, if one is given, else the environment."""

    def __init__(self, file: Path | None, environ: Mapping[str, str] = os.environ) -> None:
        self._file = file
        self._environ = environ

    def headers(self) -> dict[str, str]:
        """What shows the key, if there is one. Raises `DialFailed`, which never has the key."""
        key = self._read()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _read(self) -> str:
        if self._file is None:
            return _checked(self._environ.get(VARIABLE, ""), VARIABLE)
        try:
            text = self._file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise DialFailed(f"--key-file: cannot read {self._file}: {reason}") from error
        if not (key := _checked(text, "--key-file")):
            raise DialFailed(f"--key-file: {self._file} is empty; it must hold the agent's key")
        return key


def _checked(text: str, source: str) -> str:
    key = text.strip()
    if len(key) > LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise DialFailed(f"{source}: must hold one access key on one line")
    return key


NO_KEY = AgentKey(None, {})
