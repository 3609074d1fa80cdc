"""The engine's processor time in each layout of the KV cache: `python -m bench.kv_steps`.

One thread computes the same sequences in an engine with a stream for each slot, and in one with a
cache for all; nothing else is measured. Its processor time says which layout costs less on a
machine that others use, too. A ratio is the median of the rounds' ratios.
"""

import argparse
import sys
import time
from dataclasses import replace
from statistics import median

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Decoded
from arriero.shared.reports.model_info import KvLayout
from bench.arguments import at_least
from bench.models import Q06, TINY, made

SLOTS = 8
CONTEXT_SIZE = 2048
HOST_CACHE = 2**29
LAYOUTS: tuple[KvLayout, ...] = ("streams", "unified")

Work = list[tuple[list[int], int]]
"""Prompts, each with how many tokens are generated after it."""


def plain(seed: int, count: int, num_tokens: int) -> Work:
    """Prompts of 80 to 95 tokens that have nothing in common."""
    return [(_words(seed + i, 80 + i % 16), num_tokens + i * 7 % 5) for i in range(count)]


def prefix(seed: int, count: int, num_tokens: int) -> Work:
    """Prompts that share their first 500 tokens."""
    common = _words(seed, 500)
    return [([*common, *_words(seed + 1 + i, 20)], num_tokens + i * 7 % 5) for i in range(count)]


def _words(seed: int, count: int) -> list[int]:
    return [1000 + (seed * 7919 + place * 104729) % 20000 for place in range(count)]


WORK = {
    "streams (q06)": (Q06, plain, 16, 48),
    "prefix (q06)": (Q06, prefix, 16, 16),
    "overhead (tiny)": (TINY, plain, 48, 128),
}


def schedule(engine: LlamaEngine) -> Scheduler:
    """What plans the steps of `engine`; it has to know all that is in the cells."""
    return Scheduler(
        slots=SLOTS,
        context_size=CONTEXT_SIZE,
        max_stall=0.5,
        end_tokens=frozenset(),
        capacity=replace(engine.capacity, max_draft=0),
    )


def seconds(engine: LlamaEngine, scheduler: Scheduler, work: Work, first: int) -> float:
    """Processor time of computing `work` with as many at once as there are slots.

    Its sequences are numbered from `first` on.
    """
    for number, (tokens, num_tokens) in enumerate(work, start=first):
        sequence = NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tuple(tokens)),
            max_tokens=num_tokens,
            sampling=Sampling(seed=0, temperature=0, ignore_eos=True),
        )
        engine.open(sequence)
        scheduler.add(sequence)
    began = time.thread_time()
    while (step := scheduler.plan()) is not None:
        started = time.thread_time()
        outcome = engine.execute(step)
        if not isinstance(outcome, Decoded):
            raise SystemExit(f"bench: a step was not computed: {outcome}")
        outputs = scheduler.commit(step, outcome, time.thread_time() - started)
        for output in outputs:
            if output.end is not None:
                engine.close(output.id)
    return time.thread_time() - began


def measure(name: str, rounds: int) -> None:
    """Print the medians of one work, and of their ratio."""
    shape, make_work, count, num_tokens = WORK[name]
    taken: dict[KvLayout, list[float]] = {layout: [] for layout in LAYOUTS}
    for number in range(rounds):
        order = LAYOUTS if number % 2 else LAYOUTS[::-1]
        for layout in order:
            engine = load_engine(
                made(shape),
                LoadOptions(
                    slots=SLOTS,
                    context_size=CONTEXT_SIZE,
                    host_cache=HOST_CACHE,
                    threads=1,
                    gpu_layers=0,
                    kv_layout=layout,
                ),
            )
            if not isinstance(engine, LlamaEngine):
                raise SystemExit(f"bench: {name} needs a model that generates")
            scheduler = schedule(engine)
            seconds(engine, scheduler, make_work(1000, SLOTS, 4), first=0)
            work = make_work(number, count, num_tokens)
            taken[layout].append(seconds(engine, scheduler, work, first=SLOTS))
            engine.free()
    ratios = sorted(a / b for a, b in zip(taken["unified"], taken["streams"], strict=True))
    medians = ", ".join(f"{layout} {median(taken[layout]):.2f} s" for layout in LAYOUTS)
    print(
        f"{name}: {medians}; streams are {median(ratios):.2f} times as fast "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.kv_steps")
    parser.add_argument("--work", action="append", choices=WORK, help="repeatable; all without it")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    arguments = parser.parse_args(sys.argv[1:])
    for name in arguments.work or WORK:
        measure(name, arguments.rounds)


if __name__ == "__main__":
    main()
