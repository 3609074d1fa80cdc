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
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

import gguf
import numpy as np
from aiohttp import ClientTimeout

from bench.arguments import at_least
from bench.models import SHAPES, Shape, made
from integration_tests.daemons import Daemon, Fleet

CONTEXT_SIZE = 256
STARTED_AT_ONCE = 4
PATIENCE = ClientTimeout(total=None)
PROMPT = "The mule knows the way over the pass. " * 6


Name = Literal["one base", "processes", "one base, one adapter"]


@dataclass(frozen=True, slots=True)
class Side:
    """A fleet that serves all adapters; `models` are their names, as requests have them."""

    fleet: Fleet
    models: tuple[str, ...]
    agents: tuple[Daemon, ...]

    @property
    def memory(self) -> int:
        """Bytes of all agents' processes, of shared pages their share."""
        return sum(_pss(pid) for agent in self.agents for pid in agent.pids)

    @property
    def processor_seconds(self) -> float:
        """The processor time of all agents' processes so far."""
        return sum(_processor_seconds(pid) for agent in self.agents for pid in agent.pids)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
    await fleet.start_balancer(buffered_request_timeout=600, first_token_timeout=600)
    return fleet


async def _agent(fleet: Fleet, model: Path, **settings: object) -> Daemon:
    return await fleet.start_agent(
        model=model, context_size=CONTEXT_SIZE, threads=1, host_cache=0, **settings
    )


# ---- traffic


async def answered(
    side: Side, *, at_once: int, num_requests: int, num_tokens: int
) -> tuple[float, float]:
    """While `at_once` callers ask for one adapter after the other: tokens a second, and the
    processor seconds of a token."""
    waiting = (side.models[number % len(side.models)] for number in range(num_requests))

    async def ask() -> None:
        for model in waiting:
            await _ask(side, model, num_tokens)

    began, spent = time.perf_counter(), side.processor_seconds
    await asyncio.gather(*(ask() for _ in range(at_once)))
    count = num_requests * num_tokens
    return count / (time.perf_counter() - began), (side.processor_seconds - spent) / count


async def _ask(side: Side, model: str, num_tokens: int) -> None:
    body = {
        "model": model,
        "prompt": PROMPT,
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "stream": False,
    }
    url = f"{side.fleet.inference}/api/v1/generate"
    async with side.fleet.http.post(url, json=body, timeout=PATIENCE) as response:
        if response.status != 200:
            raise SystemExit(f"bench: {model}: {await response.text()}")
        await response.read()


async def measure(arguments: argparse.Namespace) -> None:
    """Print throughput and memory of both sides."""
    shape = SHAPES[arguments.model]
    model = made(shape)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-bench-")))
        files = [folder / f"a{number}.gguf" for number in range(arguments.adapters)]
        for seed, file in enumerate(files):
            write_adapter(file, shape, rank=arguments.rank, seed=seed)
        base = await one_base(stack, model, files, arguments.at_once)
        sides: dict[Name, Side] = {
            "one base": base,
            "processes": await processes(stack, model, files),
            "one base, one adapter": replace(base, models=base.models[:1]),
        }
        results: dict[Name, list[tuple[float, float]]] = {name: [] for name in sides}
        for number in range(-1, arguments.rounds):  # the first one warms up
            for name in list(sides)[:: 1 if number % 2 else -1]:
                result = await answered(
                    sides[name],
                    at_once=arguments.at_once,
                    num_requests=arguments.requests,
                    num_tokens=arguments.tokens,
                )
                results[name] += [result] if number >= 0 else []
        size = files[0].stat().st_size
        print(f"{arguments.adapters} adapters of {size / 2**20:.1f} MiB of {shape.name}")
        for name, side in sides.items():
            print(_line(name, side, results[name]))
        for other in list(sides)[1:]:
            print(_ratios(other, results))


def _line(name: Name, side: Side, results: Sequence[tuple[float, float]]) -> str:
    rates, seconds = zip(*results, strict=True)
    return (
        f"{name}: {median(rates):.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f}), "
        f"{median(seconds) * 1000:.1f} ms of processor a token, "
        f"{side.memory / 2**20:.0f} MiB in {len(side.agents)} agents"
    )


def _ratios(other: Name, results: Mapping[Name, Sequence[tuple[float, float]]]) -> str:
    pairs = list(zip(results["one base"], results[other], strict=True))
    rate, seconds = (median(one[each] / two[each] for one, two in pairs) for each in (0, 1))
    return (
        f"one base to {other}, median of pairs: "
        f"{rate:.2f} of the tokens/s, {seconds:.2f} of the processor time of a token"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.adapters")
    parser.add_argument("--model", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--adapters", type=at_least(1), default=20)
    parser.add_argument("--rank", type=at_least(1), default=8)
    parser.add_argument("--at-once", type=at_least(1), default=8, help="callers")
    parser.add_argument("--requests", type=at_least(1), default=40, help="of a round")
    parser.add_argument("--tokens", type=at_least(1), default=32, help="of an answer")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    asyncio.run(measure(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
