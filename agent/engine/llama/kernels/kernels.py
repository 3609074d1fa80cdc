"""Chooses between llama.cpp's fastest kernels on CPUs and its plain ones.

The fastest ones (AMX tiles, repacked weights) keep weights in "extra buffers" with a layout of
their own. Some builds crash in them or compute nonsense: compilers have dropped the stores that
configure AMX tiles (ggml-org/llama.cpp#20824). So they are tried, once for each build and
processor, in a process that may die of it.
"""

import hashlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from .....shared.messages import Kernels

logger = logging.getLogger(__name__)

CHECK = (sys.executable, "-m", "arriero.agent.engine.llama.kernels.check")

TIMEOUT = 60.0
"""Seconds for the check, which takes one or two. Kernels that never end are broken too."""

MOST_THREADS = 4
"""Enough for the kernels to share out their rows."""

_FORM = "1"
"""Of the check: another one makes earlier answers void."""


def choose(
    choice: Literal["auto"] | Kernels,
    *,
    threads: int,
    folder: Path | None = None,
    check: Sequence[str] = CHECK,
) -> Kernels:
    """What to load weights for; `auto` blocks for a second or two where no answer is kept yet.

    Answers are kept in `folder`, by default the user's cache folder.
    """
    if choice != "auto":
        return choice
    kept = (folder or _cache_folder()) / f"{_key()}.json"
    reason = _read(kept)
    if reason is None:
        reason = _try(check, threads)
        _write(kept, reason)
    if reason:
        logger.warning(
            "llama.cpp's plain kernels are used, because the fastest ones fail: %s", reason
        )
    return "plain" if reason else "all"


def _try(check: Sequence[str], threads: int) -> str:
    """Why the extra buffers cannot be trusted; empty if they can."""
    command = (*check, str(min(threads, MOST_THREADS)))
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, text=True)
    except subprocess.TimeoutExpired:
        return f"the check did not end within {TIMEOUT:.0f} s"
    except OSError as error:
        return f"the check could not start: {error}"
    logger.debug("check of kernels: %s%s", done.stdout, done.stderr[-2000:])
    if done.returncode < 0:
        return f"the check ended by {signal.Signals(-done.returncode).name}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return f"the check ended with code {done.returncode}: {last[:200]}"
    try:
        verdict = json.loads(done.stdout)
        return "" if verdict["is_sound"] else str(verdict["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the check's answer is no verdict: {done.stdout[:200]!r}"


def _key() -> str:
    """Names library, processor, and the check's own form."""
    digest = hashlib.sha256(_FORM.encode())
    for library in sorted(_libraries()):
        digest.update(library.read_bytes())
    digest.update(_processor().encode())
    return digest.hexdigest()[:24]


def _libraries() -> list[Path]:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return []
    files = (Path(spec.origin).parent / "lib").iterdir()
    return [path for path in files if "ggml-cpu" in path.name and not path.is_symlink()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features")
    found = {line.partition(":")[0].strip(): line for line in lines if line.startswith(wanted)}
    return f"{platform.machine()} {sorted(found.values())}"


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arriero" / "kernels"


def _read(path: Path) -> str | None:
    try:
        reason = json.loads(path.read_bytes())["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return reason if isinstance(reason, str) else None


def _write(path: Path, reason: str) -> None:
    """Whole or not at all: agents that start at the same time may share the folder."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps({"reason": reason}))
        unfinished.replace(path)
    except OSError as error:
        logger.info("the check of kernels is made again at the next start: %s", error)
