"""What the benchmarks keep: models and the peer in a cache folder, results beside the code."""

import os
import platform
from pathlib import Path
from typing import Any

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
