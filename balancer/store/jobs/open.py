"""What keeps files and batches, beside the rest of `--state`."""

from ..open import OpenedStore
from .memory import MemoryJobs
from .port import JobStore


def job_store_of(opened: OpenedStore) -> JobStore:
    """In the same database; in memory where there is none."""
    if opened.transaction is None:
        return MemoryJobs()
    from .sql import SqlJobs

    return SqlJobs(opened.transaction)
