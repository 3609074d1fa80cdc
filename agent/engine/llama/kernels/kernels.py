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

from .....shared.reports.model_info import Kernels

logger = logging.getLogger(__name__)

CHECK = (sys.executable, "-m", "arriero.agent.engine.llama.kernels.check")

TIMEOUT = 60.0
"""Seconds for the check, which takes one or two. Kernels that never end are broken too."""

THREADS = 4
"""Of the check, however many the agent has: its answer is kept for agents with more."""

_FAULTS = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT}
"""What broken kernels end by. Other signals come from outside."""

_FORM = "1"
"""Of the check: another one makes earlier answers void."""


def choose(
    choice: Literal["auto"] | Kernels,
    *,
    folder: Path | None = None,
    check: Sequence[str] = CHECK,
) -> Kernels:
    """What to load weights for; `auto` blocks for a second or two where no answer is kept yet.

    Answers are kept in `folder`, by default the user's cache folder. A check that says nothing of
    the kernels (it could not start, was killed, did not end) is made again at the next start.
    """
    if choice != "auto":
        return choice
    kept = (folder or _cache_folder()) / f"{_key()}.json"
    reason = _read(kept)
    if reason is None:
        try:
            reason = _try(check)
            _write(kept, reason)
        except _NoAnswer as error:
            reason = str(error)
    if reason:
        logger.warning(
            "llama.cpp's plain kernels are used, because the fastest ones fail: %s", reason
        )
    return "plain" if reason else "all"


class _NoAnswer(Exception):
    """The check did not come to a verdict, for a reason that may be gone next time."""


def _try(check: Sequence[str]) -> str:
    """Why the extra buffers cannot be trusted; empty if they can. Raises `_NoAnswer`."""
    try:
        done = subprocess.run(
            (*check, str(THREADS)), capture_output=True, timeout=TIMEOUT, text=True
        )
    except subprocess.TimeoutExpired:
        raise _NoAnswer(f"the check did not end within {TIMEOUT:.0f} s") from None
    except OSError as error:
        raise _NoAnswer(f"the check could not start: {error}") from error
    logger.debug("check of kernels: %s%s", done.stdout, done.stderr[-2000:])
    if -done.returncode in _FAULTS:
        return f"the check ended by {signal.Signals(-done.returncode).name}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise _NoAnswer(f"the check ended with code {done.returncode}: {last[:200]}")
    try:
        verdict = json.loads(done.stdout)
        return "" if verdict["is_sound"] else str(verdict["reason"])
    except (ValueError, KeyError, TypeError):
        raise _NoAnswer(f"the check's answer is no verdict: {done.stdout[:200]!r}") from None


def _key() -> str:
    """Names library, processor, and the check's own form."""
    digest = hashlib.sha256(_FORM.encode())
    for library in sorted(_libraries()):
        digest.update(library.read_bytes())
    digest.update(_processor().encode())
    return digest.hexdigest()[:24]


def _libraries() -> list[Path]:
    """llama-cpp-python's own, or those that its variable `LLAMA_CPP_LIB_PATH` names."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return []
    folder = os.environ.get("LLAMA_CPP_LIB_PATH") or Path(spec.origin).parent / "lib"
    return [path for path in Path(folder).glob("*ggml-cpu*") if path.is_file()]


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
