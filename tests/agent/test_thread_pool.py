"""Thread pools whose threads run from the beginning."""

import threading

from arriero.agent.thread_pool import thread_pool


def test_no_thread_starts_later() -> None:
    called: list[int] = []
    with thread_pool(3, "early", lambda: called.append(threading.get_ident())) as threads:
        running = {each for each in threading.enumerate() if each.name.startswith("early")}
        assert len(running) == len(called) == 3
        together = threading.Barrier(3)
        for done in [threads.submit(together.wait) for _ in range(3)]:
            done.result()
        assert running == {each for each in threading.enumerate() if each.name.startswith("early")}
