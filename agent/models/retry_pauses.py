"""How long to wait after a failed attempt: short where a look costs little, long where it costs."""

SOON = (5.0, 60.0)
"""First and longest pause, in seconds, where a look costs little: the network, disks, tokens."""

LATER = (60.0, 3600.0)
"""Where each attempt may download the whole file, or load the whole model, again."""

COSTLY = frozenset({"wrong_checksum", "torn", "not_a_gguf", "load_failed"})


def pause_after(code: str, last: float) -> float:
    """Seconds until the next attempt after an issue with this code.

    Pauses double; `last` was the one before, 0 if there was none.
    """
    first, longest = LATER if code in COSTLY else SOON
    return min(max(2 * last, first), longest)
