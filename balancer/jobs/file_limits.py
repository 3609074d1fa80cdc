"""How large files may be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Most bytes of one file, and of all together."""

    max_file: int = 2**30
    max_total: int = 64 * 2**30
