"""First tokens of short requests beside a batch, in an engine: `python -m bench.beside_batch`.

The engine's own worker, without daemons. Requests come one after the other: alone, beside streams
of the same class, and beside streams of the class `batch`, which yield. The three take turns, so
what else the machine does meets all of them. With `--model FILE` any model that generates.
"""

import argparse
import os
import queue
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from arriero.agent.cpu_cores import default_threads
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId, SequenceOutput
from arriero.agent.engine.worker import Worker
from bench.arguments import at_least

DEMO = Path(__file__).parents[1] / "demo" / "arriero-demo.gguf"
NUM_STREAMS = 7
CONTEXT_SIZE = 2048
SIDES = {"alone": None, "beside its class": 0, "beside a batch": -1}
"""The priority of the streams; without one there are none."""

NUM_TOKENS = 8
"""Tokens of each request's answer."""

PAUSE = 0.1
"""Seconds at most between two requests, drawn, so that they come at any moment of a step."""


class Bench:
    """A worker, and the requests that wait for a first token."""

    def __init__(self, model: Path, threads: int) -> None:
        self._outputs: queue.SimpleQueue[tuple[SequenceOutput, ...]] = queue.SimpleQueue()
        self._ids = map(SequenceId, count(1))
        self._random = random.Random(1)
        self.num_tokens = 0
        self.worker = Worker(
            model,
            LoadOptions(
                slots=NUM_STREAMS + 1,
                context_size=CONTEXT_SIZE,
                threads=threads,
                max_stall=0.5,
                gpu_layers=0,
            ),
            on_step=self._outputs.put,
            on_crash=lambda error: os._exit(f"{error}" != ""),
        )

    def submit(self, length: int, priority: int, max_tokens: int | None) -> SequenceId:
        """A prompt of its own."""
        id = next(self._ids)
        tokens = tuple(self._random.randrange(300, 900) for _ in range(length))
        sampling = Sampling(seed=0, temperature=0.0)
        sequence = NewSequence(
            id=id,
            prompt=Prompt(tokens),
            max_tokens=max_tokens,
            sampling=sampling,
            priority=priority,
        )
        self.worker.submit(sequence)
        return id

    def first_token(self, length: int) -> float:
        """Seconds from a request to its first token."""
        time.sleep(self._random.random() * PAUSE)
        began = time.perf_counter()
        id, waited = self.submit(length, 0, NUM_TOKENS), 0.0
        while True:
            outputs = self._outputs.get(timeout=60)
            self.num_tokens += sum(len(output.tokens) for output in outputs)
            for output in outputs:
                if output.id == id:
                    waited = waited or time.perf_counter() - began
                    if output.end is not None:
                        return waited

    @contextmanager
    def streams(self, priority: int | None) -> Iterator[None]:
        ids = []
        if priority is not None:
            ids = [self.submit(16, priority, None) for _ in range(NUM_STREAMS)]
            started: set[int] = set()
            while len(started) < NUM_STREAMS:
                started |= {output.id for output in self._outputs.get(timeout=60)}
        yield
        for id in ids:
            self.worker.drop(id)


def measure(bench: Bench, *, length: int, requests: int, rounds: int) -> None:
    waits: dict[str, list[float]] = {side: [] for side in SIDES}
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, priority in SIDES.items():
            with bench.streams(priority):
                began, bench.num_tokens = time.perf_counter(), 0
                waits[side] += [bench.first_token(length) for _ in range(requests)]
                rates[side].append(bench.num_tokens / (time.perf_counter() - began))
    for side, seconds in waits.items():
        p95 = quantiles(seconds, n=20)[-1]
        sys.stdout.write(
            f"{length} tokens, {side}: median {1000 * median(seconds):.1f} ms, p95 "
            f"{1000 * p95:.1f} ms, {median(seconds) / median(waits['alone']):.2f} and "
            f"{p95 / quantiles(waits['alone'], n=20)[-1]:.2f} times alone; "
            f"{median(rates[side]):.0f} tokens/s in all\n"
        )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside_batch", description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--threads", type=at_least(1), default=default_threads())
    parser.add_argument("--lengths", type=at_least(1), nargs="+", default=[24, 200])
    parser.add_argument("--requests", type=at_least(2), default=20)
    parser.add_argument("--rounds", type=at_least(1), default=5)
    given = parser.parse_args()
    bench = Bench(given.model, given.threads)
    bench.worker.start()
    try:
        for length in given.lengths:
            measure(bench, length=length, requests=given.requests, rounds=given.rounds)
    finally:
        bench.worker.stop()


if __name__ == "__main__":
    main()
