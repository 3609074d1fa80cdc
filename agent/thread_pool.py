"""Thread pools whose threads run from the beginning."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def thread_pool(
    num_threads: int, name: str, initializer: Callable[[], None] | None = None
) -> ThreadPoolExecutor:
    """Return an executor of `num_threads` threads that all run already.

    An executor alone starts a thread in `submit`. If the process has no memory left at that time,
    the new thread dies before it reports that it runs. `submit` then waits for ever, on the
    engine's thread or on the event loop. `initializer` is called on each thread.
    """
    threads = ThreadPoolExecutor(num_threads, name, initializer)
    all_run = Barrier(num_threads)
    for started in [threads.submit(all_run.wait) for _ in range(num_threads)]:
        started.result()
    return threads
