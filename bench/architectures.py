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
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench import peer
from bench.comparison import Start
from bench.figures import RequestsFailed, longest_gap
from bench.harness import Flags, finished, print_table, save
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
from bench.processes import resident_bytes
from bench.sides import Load, start_ours, start_theirs
from bench.small_models import ARCHITECTURES, write
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

_QUIET = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Threads of small models wait for each other more than they compute, and should not spin."""


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
        """Raises `RequestsFailed`."""
        parts, sent_at, first_token, usage = [], time.perf_counter(), 0.0, {}
        async for event in self._events(messages, num_tokens, tools):
            usage = event.get("usage") or usage
            if text := _text(event):
                first_token = first_token or time.perf_counter() - sent_at
                parts.append(text)
        if not usage or not parts:
            raise RequestsFailed("an answer without text or counts")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Answer("".join(parts), usage["prompt_tokens"], cached, first_token)

    async def watch(self, messages: Sequence[Message], times: list[float]) -> None:
        """When each text of a long answer comes, until cancelled. Raises `RequestsFailed`."""
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
                raise RequestsFailed(f"{response.status}: {await response.text()}")
            async for line in response.content:
                data = line.removeprefix(b"data: ").strip()
                if line.startswith(b"data: ") and data != b"[DONE]":
                    yield json.loads(data)


def _text(event: dict[str, Any]) -> str | None:
    return event["choices"][0]["delta"].get("content") if event["choices"] else None


async def measure(chat: Chat, rounds: int) -> Measured:
    """Asks a server that has answered nothing yet. Raises `RequestsFailed`."""
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
    measured.longest_gap = max([await gap_beside(chat, seed) for seed in range(rounds)])
    return measured


async def gap_beside(chat: Chat, seed: int) -> float:
    """The longest gap of a stream, while a prompt comes, is gone on with, and comes again.

    Raises `RequestsFailed`.
    """
    times: list[float] = []
    stream = asyncio.create_task(chat.watch([said("user", words(f"stream {seed}", USER))], times))
    prompt = said("user", words(f"beside {seed}", STREAM_PROMPT))
    answer = await chat([prompt])
    await chat([prompt, said("assistant", answer.text), said("user", words(f"on {seed}", USER))])
    await chat([prompt])
    if stream.done():
        raise RequestsFailed("the stream was over before the prompts: it needs more tokens")
    stream.cancel()
    await asyncio.wait([stream])
    return longest_gap(times)


# ---- servers


STORED = ("next turn", "branch", "regenerate")
"""What is asked with a prompt that was stored, after a restart of the agent each time."""


async def stored(model: Path, threads: int) -> dict[str, tuple[int, int]]:
    """Tokens of prompts that begin as a stored one, and how many were cached.

    Raises `RequestsFailed`.
    """
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
                raise RequestsFailed(f"{response.status}: {answer}")
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


async def memory_of_cells(start: Start, model: Path, threads: int) -> int:
    """Bytes that a server takes more with all cells than with a few, once it is ready."""
    sizes = []
    for context_size in (CONTEXT, FEW):
        async with AsyncExitStack() as stack:
            side = await start(stack, Load(model, SLOTS, context_size, threads))
            sizes.append(sum(map(resident_bytes, side.daemons[-1].pids)))
    return sizes[0] - sizes[1]


# ---- the run


@dataclass(frozen=True, slots=True)
class Outcome:
    """By architecture, by server."""

    measured: dict[str, dict[str, Measured]]
    stored: dict[str, dict[str, tuple[int, int]]]
    memory: dict[str, int]


async def run(given: argparse.Namespace) -> Outcome:
    """Raises `RequestsFailed`."""
    starts: dict[str, Start] = {OURS: start_ours}
    if peer.server_path().is_file():
        starts[THEIRS] = start_theirs
    outcome = Outcome({}, {}, {})
    with TemporaryDirectory() as folder:
        # A connection for each request: llama-server closes idle ones as the next request comes.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            for name in given.architecture or ARCHITECTURES:
                is_real = name == REAL.name
                model = made(REAL) if is_real else write(name, Path(folder) / f"{name}.gguf")
                load = Load(model, SLOTS, CONTEXT, given.threads)
                by_side = outcome.measured[name] = {}
                for side_name, start in starts.items():
                    async with AsyncExitStack() as stack:
                        side = await start(stack, load)
                        by_side[side_name] = await measure(Chat(http, side.url), given.rounds)
                outcome.stored[name] = await stored(model, given.threads)
                print(f"{name}: {by_side}, stored: {outcome.stored[name]}", flush=True)
        model = write(WINDOWED, Path(folder) / "windowed.gguf")
        for side_name, start in starts.items():
            outcome.memory[side_name] = await memory_of_cells(start, model, given.threads)
    return outcome


def beside(values: dict[str, str]) -> str:
    """Ours and theirs."""
    return " / ".join(values.get(side, "—") for side in (OURS, THEIRS))


def rows(outcome: Outcome) -> Iterator[list[str]]:
    """One row for each pattern, what was stored, and each time."""
    measured = outcome.measured.values()
    for pattern in PATTERNS:
        counts = [
            {side: one.patterns[pattern] for side, one in by_side.items()} for by_side in measured
        ]
        cells = [beside({s: f"{cached:,}" for s, (_, cached) in each.items()}) for each in counts]
        yield [pattern, _tokens(each[OURS] for each in counts), *cells]
    for what in STORED:
        found = [of_one[what] for of_one in outcome.stored.values()]
        yield [f"stored: {what}", _tokens(found), *(f"{cached:,}" for _, cached in found)]
    for title, figure in (
        ("first token of a later turn, ms", "later_turn"),
        ("first token in the first wave, ms", "first_wave"),
        ("longest gap of a stream, ms", "longest_gap"),
    ):
        times = (
            {side: f"{getattr(one, figure) * 1000:.0f}" for side, one in by_side.items()}
            for by_side in measured
        )
        yield [title, "", *map(beside, times)]


def _tokens(counts: Iterable[tuple[int, int]]) -> str:
    """Of prompts; the same for all architectures, unless answers that are sent back differ."""
    totals = {num for num, _ in counts}
    return " to ".join(f"{num:,}" for num in sorted({min(totals), max(totals)}))


def document(outcome: Outcome, given: argparse.Namespace) -> dict[str, Any]:
    """All there is to know about the run."""
    return {
        "rounds": given.rounds,
        "threads": given.threads,
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


def main() -> None:
    flags = Flags("architectures", __doc__)
    flags.add_argument(
        "--architecture",
        action="append",
        choices=[*ARCHITECTURES, REAL.name],
        help=f"which one, repeatable; without it all but {REAL.name}, which has real weights",
    )
    flags.rounds(1)
    flags.threads()
    given = flags.parse_args()
    os.environ.update(_QUIET)
    outcome = finished(run(given))
    title = f"{OURS} / {THEIRS}; of prompts, how many tokens were cached"
    print_table(title, ("requests", "tokens", *outcome.measured), rows(outcome))
    memory = beside({side: f"{num / 2**20:.0f} MiB" for side, num in outcome.memory.items()})
    print(f"memory of {WINDOWED} for {SLOTS * CONTEXT:,} cells: {memory}")
    if THEIRS not in outcome.memory:
        print(f"there is no {THEIRS}: run `make bench-setup` first")
    save("architectures", document(outcome, given))


if __name__ == "__main__":
    main()
