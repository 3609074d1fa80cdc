"""What the benchmarks keep: models and the peer in a cache folder, results beside the code."""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

_WIDTH = 120
"""Columns that the widest table takes, for where there is no terminal to ask."""

RESULTS = Path(__file__).parent / "results"


def cache_folder() -> Path:
    """The folder, outside the tree, of what is made once for this machine."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arriero" / "bench"


def processor_flags() -> str:
    """The processor's feature flags, as Linux names them; empty where they are unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def has_amx() -> bool:
    """Whether llama.cpp, built for this processor, would use its AMX kernels."""
    return "amx_int8" in processor_flags().split()


def machine() -> dict[str, Any]:
    """The machine in words, for results."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def wide_console() -> Console:
    """A console whose tables are not squeezed where the output is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def save(name: str, document: dict[str, Any]) -> None:
    """Writes `bench/results/<name>.json` and says so."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **document}, indent=2) + "\n")
    print(f"written to {path}")
