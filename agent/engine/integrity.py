"""The check that a core's `check_integrity` makes of each of its invariants; tests call it."""


def check(holds: bool, finding: str) -> None:
    """Raise `RuntimeError` with the `finding` unless it `holds`."""
    if not holds:
        raise RuntimeError(f"out of order: {finding}")
