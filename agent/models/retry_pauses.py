"""How long to wait after a failed fetch: short where it mends by itself, long where it costs."""

from .port import FetchCode

SOON = (5.0, 60.0)
"""First and longest pause, in seconds, where a look costs little: the network, disks, tokens."""

LATER = (60.0, 3600.0)
"""Where each attempt may download the whole file again."""

COSTLY: frozenset[FetchCode] = frozenset({"wrong_checksum", "torn", "not_a_gguf"})


def pause_after(code: FetchCode, failures: int) -> float:
    """Seconds until the next attempt, after `failures` of them in a row."""
    first, longest = LATER if code in COSTLY else SOON
    return float(min(first * 2 ** min(failures - 1, 20), longest))
