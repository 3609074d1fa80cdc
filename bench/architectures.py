"""What is computed twice with each kind of model: `python -m bench.architectures`.

Small models of nine architectures (`bench.small_models`) are served by Arriero, with its defaults,
and by llama-server, one after the other, and are asked the same (`bench.patterns`). Where
llama-server was not built, its figures are missing, and that is said.

`--rounds` repeats the patterns with other words. Counts are those of all rounds together; times are
medians.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from bench import peer
from bench.arguments import at_least
from bench.models import Real, made
from bench.patterns import (
    ANSWER,
    PATTERNS,
    USER,
    Answer,
    Message,
    conversation,
    first_wave,
    said,
    turns,
    words,
)
from bench.sides import Load, start_ours, start_theirs
from bench.small_models import ARCHITECTURES, write
from bench.store import save
from integration_tests.daemons import Daemon, Fleet

OURS, THEIRS = "arriero", "llama-server"
SLOTS, CONTEXT = 4, 8192
FEW = 256
"""Tokens of a slot where there is hardly any cache, for what a server takes besides."""

REAL = Real("smollm2")

WINDOWED = "gemma3"
"""Its caches are measured."""

STREAM_TOKENS, STREAM_PROMPT = 6000, 1400
"""Of the stream beside which prompts come: the most tokens it gets; words of those prompts."""

_WIDTH = 200
"""Columns of the table, for where there is no terminal to ask."""

_QUIET = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Threads of small models wait for each other more than they compute, and should not spin."""


class Failed(Exception):
    """A request failed: there are no figures."""


@dataclass(slots=True)
class Measured:
    """One server's figures of one architecture.

    `patterns` are tokens of prompts, and how many of them were cached. Times are seconds: to the
    first token of a later turn and of the requests of a first wave, and the longest gap of a stream
    beside prompts that come, are gone on with and come again.
    """

    patterns: dict[str, tuple[int, int]] = field(default_factory=dict)
    later_turn: float = 0.0
    first_wave: float = 0.0
    longest_gap: float = 0.0


class Chat:
    """Asks the server at `url` over OpenAI's API."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/v1/chat/completions"

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        num_tokens: int = ANSWER,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Answer:
        """Raises `Failed`."""
        parts, sent_at, first_token, usage = [], time.perf_counter(), 0.0, {}
        async for event in self._events(messages, num_tokens, tools):
            usage = event.get("usage") or usage
            if text := _text(event):
                first_token = first_token or time.perf_counter() - sent_at
                parts.append(text)
        if not usage or not parts:
            raise Failed("an answer without text or counts")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Answer("".join(parts), usage["prompt_tokens"], cached, first_token)

    async def watch(self, messages: Sequence[Message], times: list[float]) -> None:
        """When each text of a long answer comes, until this is cancelled. Raises `Failed`."""
        async for event in self._events(messages, STREAM_TOKENS, ()):
            if _text(event):
                times.append(time.perf_counter())

    async def _events(
        self, messages: Sequence[Message], num_tokens: int, tools: Sequence[dict[str, Any]]
    ) -> AsyncIterator[dict[str, Any]]:
        body = {
            "messages": list(messages),
            "max_tokens": num_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        } | ({"tools": list(tools)} if tools else {})
        async with self._http.post(self._url, json=body) as response:
            if response.status != 200:
                raise Failed(f"{response.status}: {await response.text()}")
            async for line in response.content:
                data = line.removeprefix(b"data: ").strip()
                if line.startswith(b"data: ") and data != b"[DONE]":
                    yield json.loads(data)


def _text(event: dict[str, Any]) -> str | None:
    return event["choices"][0]["delta"].get("content") if event["choices"] else None


async def measure(chat: Chat, rounds: int) -> Measured:
    """Asks a server that has answered nothing yet. Raises `Failed`."""
    await chat([said("user", "Hello!")])
    measured = Measured()
    later, wave = [], []
    for name, pattern in PATTERNS.items():
        answers = [one for seed in range(rounds) for one in await pattern(chat, seed)]
        counts = sum(one.num_prompt for one in answers), sum(one.num_cached for one in answers)
        measured.patterns[name] = counts
        if pattern is conversation:
            later = [one.first_token for n, one in enumerate(answers) if n % 6]
        if pattern is first_wave:
            wave = [one.first_token for one in answers]
    measured.later_turn, measured.first_wave = median(later), median(wave)
    measured.longest_gap = max([await longest_gap(chat, seed) for seed in range(rounds)])
    return measured


async def longest_gap(chat: Chat, seed: int) -> float:
    """Of a stream, while a prompt comes, is gone on with, and comes again. Raises `Failed`."""
    times: list[float] = []
    stream = asyncio.create_task(chat.watch([said("user", words(f"stream {seed}", USER))], times))
    prompt = said("user", words(f"beside {seed}", STREAM_PROMPT))
    answer = await chat([prompt])
    await chat([prompt, said("assistant", answer.text), said("user", words(f"on {seed}", USER))])
    await chat([prompt])
    if stream.done():
        raise Failed("the stream was over before the prompts: it needs more tokens")
    stream.cancel()
    await asyncio.wait([stream])
    return max(later - earlier for earlier, later in pairwise(times))


# ---- servers


async def measured_ours(load: Load, http: aiohttp.ClientSession, rounds: int) -> Measured:
    async with AsyncExitStack() as stack:
        side = await start_ours(stack, load)
        return await measure(Chat(http, side.url), rounds)


async def measured_theirs(load: Load, http: aiohttp.ClientSession, rounds: int) -> Measured:
    async with AsyncExitStack() as stack:
        side = await start_theirs(stack, load)
        return await measure(Chat(http, side.url), rounds)


STORED = ("next turn", "branch", "regenerate")
"""What is asked with a prompt that was stored, after a restart of the agent each time."""


async def stored(model: Path, threads: int) -> dict[str, tuple[int, int]]:
    """Tokens of prompts that begin as a stored one, and how many were cached. Raises `Failed`."""
    found = {}
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        folder = Path(stack.enter_context(TemporaryDirectory()))

        async def started() -> Daemon:
            return await fleet.start_agent(
                model=model, slots=SLOTS, context_size=CONTEXT, threads=threads, cache_dir=folder
            )

        async def ask(messages: Sequence[Message], **more: object) -> dict[str, Any]:
            body = {"messages": messages, "max_tokens": ANSWER, "temperature": 0, "stream": False}
            url = f"{fleet.inference}/api/v1/generate"
            async with fleet.http.post(url, json=body | {"cache_key": "kept", **more}) as response:
                answer: dict[str, Any] = await response.json()
            if response.status != 200:
                raise Failed(f"{response.status}: {answer}")
            return answer

        agent = await started()
        history, _ = await turns(Chat(fleet.http, fleet.inference), "stored", 1)
        text = (await ask(history[:-1], save_cache=True))["text"]
        other = said("user", words("branch", USER))
        asked = ([*history[:-1], said("assistant", text), other], [history[0], other], history[:-1])
        for name, messages in zip(STORED, asked, strict=True):
            await agent.terminate()
            agent = await started()
            usage = (await ask(messages))["usage"]
            found[name] = usage["prompt_tokens"], usage["cached_tokens"]
    return found


async def memory_of_cells(name: str, model: Path, threads: int) -> int:
    """Bytes that a server takes more with all cells than with a few, once it is ready."""
    start = start_ours if name == OURS else start_theirs
    sizes = []
    for context_size in (CONTEXT, FEW):
        async with AsyncExitStack() as stack:
            side = await start(stack, Load(model, SLOTS, context_size, threads))
            sizes.append(sum(resident(pid) for pid in side.daemons[-1].pids))
    return sizes[0] - sizes[1]


def resident(pid: int) -> int:
    """Bytes of memory that a process has touched."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


# ---- the run


@dataclass(frozen=True, slots=True)
class Outcome:
    """By architecture, by server."""

    measured: dict[str, dict[str, Measured]]
    stored: dict[str, dict[str, tuple[int, int]]]
    memory: dict[str, int]


async def run(arguments: argparse.Namespace) -> Outcome:
    """Raises `Failed`."""
    sides = {OURS: measured_ours}
    if peer.server_path().is_file():
        sides[THEIRS] = measured_theirs
    outcome = Outcome({}, {}, {})
    with TemporaryDirectory() as folder:
        # A connection for each request: llama-server closes idle ones as the next request comes.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            for name in arguments.architecture or ARCHITECTURES:
                if name == REAL.name:
                    model = made(REAL)
                else:
                    model = write(name, Path(folder) / f"{name}.gguf")
                load = Load(model, SLOTS, CONTEXT, arguments.threads)
                by_side = outcome.measured[name] = {}
                for side, measure_side in sides.items():
                    by_side[side] = await measure_side(load, http, arguments.rounds)
                outcome.stored[name] = await stored(model, arguments.threads)
                print(f"{name}: {by_side}, stored: {outcome.stored[name]}", flush=True)
        model = write(WINDOWED, Path(folder) / "windowed.gguf")
        for side in sides:
            outcome.memory[side] = await memory_of_cells(side, model, arguments.threads)
    return outcome


def beside(values: dict[str, str]) -> str:
    """Ours and theirs."""
    return " / ".join(values.get(side, "—") for side in (OURS, THEIRS))


def show(outcome: Outcome) -> None:
    table = Table(title=f"{OURS} / {THEIRS}; of prompts, how many tokens were cached")
    table.add_column("requests")
    for heading in ("tokens", *outcome.measured):
        table.add_column(heading, justify="right", no_wrap=True)
    for pattern in PATTERNS:
        counts_of = [
            {side: one.patterns[pattern] for side, one in by_side.items()}
            for by_side in outcome.measured.values()
        ]
        cells = [
            beside({side: f"{cached:,}" for side, (_, cached) in counts.items()})
            for counts in counts_of
        ]
        table.add_row(pattern, _tokens(counts[OURS] for counts in counts_of), *cells)
    for what in STORED:
        counts = [of_one[what] for of_one in outcome.stored.values()]
        table.add_row(f"stored: {what}", _tokens(counts), *(f"{cached:,}" for _, cached in counts))
    for title, figure in (
        ("first token of a later turn, ms", "later_turn"),
        ("first token in the first wave, ms", "first_wave"),
        ("longest gap of a stream, ms", "longest_gap"),
    ):
        shown = [
            beside({side: f"{getattr(one, figure) * 1000:.0f}" for side, one in by_side.items()})
            for by_side in outcome.measured.values()
        ]
        table.add_row(title, "", *shown)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)
    memory = beside({side: f"{num / 2**20:.0f} MiB" for side, num in outcome.memory.items()})
    print(f"memory of {WINDOWED} for {SLOTS * CONTEXT:,} cells: {memory}")
    if THEIRS not in outcome.memory:
        print(f"there is no {THEIRS}: run `make bench-setup` first")


def _tokens(counts: Iterable[tuple[int, int]]) -> str:
    """Of prompts; the same for all architectures, unless answers that are sent back differ."""
    totals = {num for num, _ in counts}
    return " to ".join(f"{num:,}" for num in sorted({min(totals), max(totals)}))


def document(outcome: Outcome, arguments: argparse.Namespace) -> dict[str, Any]:
    """All there is to know about the run."""
    return {
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "slots": SLOTS,
        "context_size": CONTEXT,
        "has_llama_server": THEIRS in outcome.memory,
        "architectures": {
            name: {side: asdict(one) for side, one in by_side.items()}
            for name, by_side in outcome.measured.items()
        },
        "stored": outcome.stored,
        "memory_of_cells": outcome.memory,
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.architectures")
    parser.add_argument(
        "--architecture",
        action="append",
        choices=[*ARCHITECTURES, REAL.name],
        help=f"which one, repeatable; without it all but {REAL.name}, which has real weights",
    )
    parser.add_argument("--rounds", type=at_least(1), default=1, help="times each pattern is asked")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    os.environ.update(_QUIET)
    try:
        outcome = uvloop.run(run(arguments))
    except Failed as error:
        raise SystemExit(f"bench: {error}") from error
    show(outcome)
    save("architectures", document(outcome, arguments))


if __name__ == "__main__":
    main()
