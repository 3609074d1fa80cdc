"""One base with many adapters against a process for each: `python -m bench.adapters`.

Random adapters (LoRA) of a random model are made on the spot. One agent serves all of them beside
one copy of the model; on the other side each has an agent of its own, which serves the model with
one adapter. Both sides are up all the while and answer the same requests in turns, so a machine
that others use, too, is as slow for one as for the other; still many processes get more of it than
one, so the processor time of a token is reported as well. Memory is each process's share (PSS).
A third way is the one base with all requests for the same adapter: what turns cost.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from bench.answers import PATIENT, generate
from bench.figures import Rounds, ratio, spread
from bench.harness import Flags, at_least, finished, in_turn, print_table, save
from bench.models import SHAPES, Shape, made
from bench.processes import cpu_seconds, proportional_bytes
from bench.small_models import finish
from integration_tests.daemons import Daemon, Fleet

CONTEXT_SIZE = 256
STARTED_AT_ONCE = 4
PROMPT = "The mule knows the way over the pass. " * 6
BASE = "one base"


@dataclass(frozen=True, slots=True)
class Side:
    """A fleet that serves all adapters; `models` are their names, as requests have them."""

    fleet: Fleet
    models: tuple[str, ...]
    agents: tuple[Daemon, ...]

    @property
    def memory(self) -> int:
        """Bytes of all agents' processes, of shared pages their share."""
        return sum(proportional_bytes(pid) for agent in self.agents for pid in agent.pids)

    @property
    def processor_seconds(self) -> float:
        """The processor time of all agents' processes so far."""
        return sum(cpu_seconds(pid) for agent in self.agents for pid in agent.pids)


# ---- adapters


def write_adapter(path: Path, shape: Shape, *, rank: int, seed: int) -> None:
    """A random adapter of all linear maps of `shape`, in 16-bit floats."""
    draw = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for name, inputs, outputs in _linear_maps(shape):
        for end, size in (("lora_a", (rank, inputs)), ("lora_b", (outputs, rank))):
            weights = draw.standard_normal(size, np.float32) * np.float32(0.02)
            writer.add_tensor(f"{name}.weight.{end}", weights.astype(np.float16))
    finish(writer)


def _linear_maps(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Name, inputs and outputs of each."""
    width, heads = shape.width, shape.heads * shape.head_size
    keys = shape.kv_heads * shape.head_size
    maps = {
        "attn_q": (width, heads),
        "attn_k": (width, keys),
        "attn_v": (width, keys),
        "attn_output": (heads, width),
        "ffn_gate": (width, shape.feed_forward),
        "ffn_up": (width, shape.feed_forward),
        "ffn_down": (shape.feed_forward, width),
    }
    for layer in range(shape.layers):
        for name, (inputs, outputs) in maps.items():
            yield f"blk.{layer}.{name}", inputs, outputs


# ---- the two sides


async def one_base(stack: AsyncExitStack, model: Path, files: Sequence[Path], slots: int) -> Side:
    """One agent with all adapters and `slots`."""
    fleet = await _fleet(stack)
    flags = [f"{file.stem}={file}" for file in files]
    agent = await _agent(fleet, model, adapter=flags, slots=slots)
    return Side(fleet, tuple(f"{model.stem}:{file.stem}" for file in files), (agent,))


async def processes(stack: AsyncExitStack, model: Path, files: Sequence[Path]) -> Side:
    """An agent for each adapter, with one slot."""
    fleet = await _fleet(stack)
    agents: list[Daemon] = []
    for first in range(0, len(files), STARTED_AT_ONCE):
        some = files[first : first + STARTED_AT_ONCE]
        starts = (_agent(fleet, model, adapter=f"{each.stem}={each}", slots=1) for each in some)
        agents += await asyncio.gather(*starts)
    return Side(fleet, tuple(f"{model.stem}:{file.stem}" for file in files), tuple(agents))


async def _fleet(stack: AsyncExitStack) -> Fleet:
    fleet = Fleet(stack)
    await fleet.open_client()
    await fleet.start_balancer(**PATIENT)
    return fleet


async def _agent(fleet: Fleet, model: Path, **settings: object) -> Daemon:
    return await fleet.start_agent(
        model=model, context_size=CONTEXT_SIZE, threads=1, host_cache=0, **settings
    )


# ---- traffic


FIGURES = RATE, SECONDS = ("tokens/s", "processor ms a token")


async def answered(side: Side, given: argparse.Namespace) -> dict[str, float]:
    """While `--at-once` callers ask for one adapter after the other. Raises `RequestsFailed`."""
    waiting = (side.models[number % len(side.models)] for number in range(given.requests))

    async def ask() -> None:
        for model in waiting:
            body = {"model": model, "prompt": PROMPT, "max_tokens": given.tokens}
            await generate(side.fleet, body | {"ignore_eos": True, "stream": False})

    began, spent = time.perf_counter(), side.processor_seconds
    await asyncio.gather(*(ask() for _ in range(given.at_once)))
    count = given.requests * given.tokens
    return {
        RATE: count / (time.perf_counter() - began),
        SECONDS: 1000 * (side.processor_seconds - spent) / count,
    }


async def measure(given: argparse.Namespace) -> tuple[Rounds, dict[str, int]]:
    """Figures and memory of all sides. Raises `RequestsFailed`."""
    shape = SHAPES[given.model]
    model = made(shape)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-bench-")))
        files = [folder / f"a{number}.gguf" for number in range(given.adapters)]
        for seed, file in enumerate(files):
            write_adapter(file, shape, rank=given.rank, seed=seed)
        size = files[0].stat().st_size / 2**20
        print(f"{given.adapters} adapters of {size:.1f} MiB of {shape.name}", flush=True)
        base = await one_base(stack, model, files, given.at_once)
        sides: dict[str, Side] = {
            BASE: base,
            "processes": await processes(stack, model, files),
            "one base, one adapter": replace(base, models=base.models[:1]),
        }
        for side in sides.values():
            await answered(side, given)  # warms up
        rounds: Rounds = {name: [] for name in sides}
        for _, name in in_turn(list(sides), given.rounds):
            rounds[name].append(await answered(sides[name], given))
        return rounds, {name: side.memory for name, side in sides.items()}


def rows(rounds: Rounds, memory: dict[str, int]) -> Iterator[list[str]]:
    """One row for each side."""
    for name, each in rounds.items():
        medians = (spread([one[figure] for one in each], "{:.1f}".format) for figure in FIGURES)
        ratios = (str(ratio(rounds[BASE], each, figure)) for figure in FIGURES)
        yield [name, f"{memory[name] / 2**20:.0f}", *medians, *ratios]


def main() -> None:
    flags = Flags("adapters", __doc__)
    flags.shape("tiny")
    flags.rounds(3)
    flags.add_argument("--adapters", type=at_least(1), default=20)
    flags.add_argument("--rank", type=at_least(1), default=8)
    flags.add_argument("--at-once", type=at_least(1), default=8, help="callers")
    flags.add_argument("--requests", type=at_least(1), default=40, help="of a round")
    flags.add_argument("--tokens", type=at_least(1), default=32, help="of an answer")
    given = flags.parse_args()
    rounds, memory = finished(measure(given))
    columns = ("side", "MiB of all agents", *FIGURES, f"{BASE} to it: {RATE}", "processor time")
    print_table("One base with adapters, and a process for each", columns, rows(rounds, memory))
    save("adapters", {"given": vars(given), "memory": memory, "rounds": rounds})


if __name__ == "__main__":
    main()
