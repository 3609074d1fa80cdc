"""The engine's own time a step: `python -m bench.step`, processor time outside `llama_decode`.

A worker generates in this process, as in an agent: planning, sampling, accounting and statistics
are its own time. Only steps in which every stream generates count. The figure is the processor time
of the engine's thread from one `llama_decode` to the next. The lowest decile says what other work
on the machine hides. `--profile` shows where the time goes; the profile itself takes most of it.
"""

import argparse
import cProfile
import pstats
import random
import time
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId, SequenceOutput
from arriero.agent.engine.worker import Worker
from bench.figures import percentile
from bench.harness import Flags, at_least, print_table, save
from bench.models import TINY

PROMPT_TOKENS = 32


class Watch:
    """Stands for `llama_decode`, and notes the thread's processor time between two calls of it."""

    def __init__(self, num_streams: int, profile: cProfile.Profile | None) -> None:
        self.decode = llama_cpp.llama_decode
        self._num_streams = num_streams
        self._profile = profile
        self._ended: int | None = None
        self.own: list[float] = []

    def __call__(self, context: Any, batch: Any) -> int:
        began = time.thread_time_ns()
        if self._profile is not None:
            self._profile.disable()
        is_full = batch.n_tokens == self._num_streams
        if is_full and self._ended is not None:
            self.own.append((began - self._ended) / 1e9)
        code = int(self.decode(context, batch))
        if self._profile is not None:
            self._profile.enable()
        self._ended = time.thread_time_ns() if is_full else None
        return code


def _measure(
    given: argparse.Namespace, num_streams: int, profile: cProfile.Profile | None
) -> list[float]:
    """The own seconds of steps of `num_streams` sequences."""
    ended: list[SequenceId] = []
    is_over = Event()

    def stepped(outputs: tuple[SequenceOutput, ...]) -> None:
        ended.extend(output.id for output in outputs if output.end is not None)
        if len(ended) == num_streams:
            is_over.set()

    worker = Worker(
        given.model,
        LoadOptions(
            slots=num_streams,
            context_size=PROMPT_TOKENS + given.steps,
            threads=given.threads,
            gpu_layers=0,
        ),
        on_step=stepped,
        on_crash=lambda _: is_over.set(),
    )
    worker.start()
    watch = llama_cpp.llama_decode = Watch(num_streams, profile)
    for number in range(num_streams):
        worker.expect(SequenceId(number), is_background=False)
    for number in range(num_streams):
        prompt = random.Random(number).choices(range(300, 1000), k=PROMPT_TOKENS)
        sampling = Sampling(seed=number, ignore_eos=True)
        worker.submit(
            NewSequence(
                id=SequenceId(number),
                prompt=Prompt(tuple(prompt)),
                max_tokens=given.steps,
                sampling=sampling,
            )
        )
    is_over.wait()
    worker.stop()
    llama_cpp.llama_decode = watch.decode
    return watch.own


def main() -> None:
    flags = Flags("step", __doc__)
    flags.file(TINY.path)
    flags.threads(1)
    flags.add_argument("--streams", type=at_least(1), nargs="+", default=[1, 8, 32])
    flags.add_argument("--steps", type=at_least(2), default=400, help="tokens of a stream (400)")
    flags.add_argument("--profile", action="store_true", help="show where the time goes")
    given = flags.parse_args()
    rows, found = [], {}
    for num_streams in given.streams:
        profile = cProfile.Profile(time.thread_time) if given.profile else None
        own = _measure(given, num_streams, profile)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        found[num_streams] = {"median": median(own), "lowest decile": percentile(own, 10)}
        rows.append(
            [str(num_streams), *(f"{each * 1e6:,.0f}" for each in found[num_streams].values())]
        )
    print_table("Own time of a step, µs", ("streams", "median", "lowest decile"), rows)
    save("step", {"model": Path(given.model).name, "steps": given.steps, "seconds": found})


if __name__ == "__main__":
    main()
