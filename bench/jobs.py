"""Batches of `/v1/batches`: `python -m bench.jobs --lines 10000 --kill-every 30`.

Three questions, each asked of real daemons:

- Is the result exact? A batch of `--lines` runs while balancer and agents are killed in turn, one
  every `--kill-every` seconds.
- What does a batch cost beside the same requests sent by hand, as many at once? (`--compare` lines)
- How long does a short request wait for its first token beside a batch? (`--interactive` requests)

On the demo model, or with `--model` on one that `make bench-setup` has made.
"""

import argparse
import asyncio
import json
import math
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from openai import AsyncOpenAI

from bench.arguments import at_least
from bench.models import CHATML, SHAPES, made
from bench.soak import resident_bytes
from integration_tests.daemons import Fleet

URL = "/v1/chat/completions"
SLOTS = 8
AT_ONCE = SLOTS + 2
"""As many as a batch has: its slots, and two that wait."""

DEMO = "arriero-demo"
SLOT_TOKENS = 256

ENDED = ("completed", "failed", "expired", "cancelled")
WORDS = ("slot", "batch", "queue", "agent", "balancer", "model", "token", "prompt")
NUM_QUESTIONS = math.lcm(len(WORDS), 90)
NUM_TOKENS = 12
LOOK_EVERY = 0.25
MB = 1e6


def body(number: int, num_tokens: int = NUM_TOKENS, model: str = DEMO) -> dict[str, Any]:
    """What line `number` asks; `NUM_QUESTIONS` lines later it is asked again."""
    question = f"What is a {WORDS[number % len(WORDS)]}? Say it in {number % 90 + 10} words."
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": num_tokens,
        "temperature": 0,
    }


def lines(number: int, num_tokens: int = NUM_TOKENS, model: str = DEMO) -> bytes:
    """The input of a batch."""
    line = {"method": "POST", "url": URL}
    rows = (
        json.dumps({**line, "custom_id": f"r{n}", "body": body(n, num_tokens, model)})
        for n in range(number)
    )
    return "\n".join(rows).encode()


@dataclass
class House:
    """The daemons, at ports that stay the same over restarts."""

    fleet: Fleet
    state: str
    model: Path | None = None
    """The demo model, if none."""
    model_name: str = DEMO
    ports: dict[str, str] = field(default_factory=dict)
    num_kills: int = 0
    most_memory: int = 0

    async def start(self) -> None:
        """A balancer and an agent."""
        await self.start_balancer()
        if self.model is None:
            await self.fleet.start_agent(slots=SLOTS)
            return
        await self.fleet.start_agent(
            slots=SLOTS, model=self.model, chat_template=CHATML, context_size=SLOT_TOKENS
        )
        async with self.client() as client:
            self.model_name = (await client.models.list()).data[0].id

    async def start_balancer(self) -> None:
        """At the former ports, if there were any."""
        addresses = {f"{name}_addr": address for name, address in self.ports.items()}
        await self.fleet.start_balancer(state=self.state, log_level="warning", **addresses)
        ready = self.fleet.balancer.ready
        self.ports = {name: ready[name] for name in ("inference", "management")}

    async def kill(self) -> None:
        """The balancer and the agent's engine in turn."""
        self.num_kills += 1
        if self.num_kills % 2:
            self.fleet.balancer.signal(signal.SIGKILL)
            await self.fleet.balancer.exit_code()
            await self.start_balancer()
        else:
            self.fleet.agents[0].signal_engine(signal.SIGKILL)

    def measure(self) -> None:
        """Look at the balancer's memory."""
        self.most_memory = max(self.most_memory, resident_bytes(self.fleet.balancer.pids))

    def client(self) -> AsyncOpenAI:
        """OpenAI's client."""
        return AsyncOpenAI(base_url=f"http://{self.ports['inference']}/v1", api_key="none")


async def submit(house: House, number: int, num_tokens: int = NUM_TOKENS) -> str:
    """The id of a batch of so many lines."""
    async with house.client() as client:
        content = await asyncio.to_thread(lines, number, num_tokens, house.model_name)
        file = await client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=URL, completion_window="24h"
        )
        return batch.id


async def until_ended(house: House, id: str, kill_every: float | None) -> Any:
    """The batch as it ended."""
    killed_at = time.monotonic()
    while True:
        async with house.client() as client:
            batch = await client.batches.retrieve(id)
        house.measure()
        if batch.status in ENDED:
            return batch
        if kill_every is not None and time.monotonic() - killed_at >= kill_every:
            await house.kill()
            killed_at = time.monotonic()
        await asyncio.sleep(LOOK_EVERY)


async def answers_by_hand(house: House, num_tokens: int) -> list[str]:
    """What each question is answered when it is asked alone."""
    async with house.client() as client:
        answers = [
            await client.chat.completions.create(**body(number, num_tokens, house.model_name))
            for number in range(NUM_QUESTIONS)
        ]
    return [str(answer.choices[0].message.content) for answer in answers]


async def check(house: House, batch: Any, number: int, answers: list[str]) -> int:
    """How many answers are not those of `answers`.

    Raises `SystemExit` unless each line has one answer.
    """
    async with house.client() as client:
        content = (await client.files.content(batch.output_file_id)).content
    rows = [json.loads(row) for row in content.splitlines()]
    ids = [row["custom_id"] for row in rows]
    if batch.status != "completed" or ids != [f"r{n}" for n in range(number)]:
        raise SystemExit(f"not exact: {batch}, {len(ids)} answers of {len(set(ids))} lines")
    texts = (row["response"]["body"]["choices"][0]["message"]["content"] for row in rows)
    return sum(text != answers[n % NUM_QUESTIONS] for n, text in enumerate(texts))


async def exactness(
    house: House, number: int, kill_every: float, num_tokens: int
) -> dict[str, float]:
    """Kills, and what came of them."""
    answers = await answers_by_hand(house, num_tokens)
    started = time.monotonic()
    id = await submit(house, number, num_tokens)
    batch = await until_ended(house, id, kill_every)
    seconds = time.monotonic() - started
    return {
        "lines": number,
        "other answers than by hand": await check(house, batch, number, answers),
        "kills": house.num_kills,
        "seconds": seconds,
        "lines a second": number / seconds,
        "balancer, MB at most": house.most_memory / MB,
    }


async def by_hand(house: House, number: int) -> float:
    """Seconds for the same requests, sent by a client."""
    numbers = iter(range(number))
    started = time.monotonic()

    async def send(client: AsyncOpenAI) -> None:
        for each in numbers:
            await client.chat.completions.create(**body(each, model=house.model_name))

    async with house.client() as client, asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(send(client))
    return time.monotonic() - started


async def comparison(house: House, number: int, rounds: int) -> dict[str, float]:
    """Medians over the rounds; the sides take turns."""
    sides: dict[str, list[float]] = {"by hand": [], "batch": []}
    await by_hand(house, number // 4)  # warms the cache of prompts
    for _ in range(rounds):
        sides["by hand"].append(await by_hand(house, number))
        started = time.monotonic()
        await until_ended(house, await submit(house, number), None)
        sides["batch"].append(time.monotonic() - started)
    hand, batch = median(sides["by hand"]), median(sides["batch"])
    return {"by hand, s": hand, "batch, s": batch, "batch to by hand": batch / hand}


async def first_tokens(house: House, number: int) -> float:
    """The 95th percentile in seconds, of one request after the other."""
    waits = []
    async with house.client() as client:
        for each in range(number):
            started = time.monotonic()
            request = body(each, model=house.model_name) | {
                "stream": True,
                "service_tier": "priority",
            }
            async with await client.chat.completions.create(**request) as stream:
                async for chunk in stream:
                    if chunk.choices and chunk.choices[0].delta.content:
                        waits.append(time.monotonic() - started)
                        break
    return quantiles(waits, n=20)[-1]


async def interactive(house: House, number: int) -> dict[str, float]:
    """Without a batch, and beside one."""
    await first_tokens(house, 10)
    alone = await first_tokens(house, number)
    id = await submit(house, 5000)
    async with house.client() as client:
        while True:
            if (await client.batches.retrieve(id)).status != "validating":
                break
            await asyncio.sleep(LOOK_EVERY)
    beside = await first_tokens(house, number)
    async with house.client() as client:
        await client.batches.cancel(id)
    return {
        "first token p95 alone, s": alone,
        "beside a batch, s": beside,
        "beside to alone": beside / alone,
    }


async def run(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What was asked for."""
    results: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = Fleet(stack)
        await fleet.open_client()
        model = made(SHAPES[arguments.model]) if arguments.model else None
        house = House(fleet, f"sqlite:///{folder}/state.db", model)
        await house.start()
        if arguments.compare:
            results["overhead"] = await comparison(house, arguments.compare, arguments.rounds)
        if arguments.interactive:
            results["interactive"] = await interactive(house, arguments.interactive)
        if arguments.lines:
            results["exactness"] = await exactness(
                house, arguments.lines, arguments.kill_every, arguments.tokens
            )
    return results


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("--lines", type=at_least(0), default=10_000)
    parser.add_argument("--kill-every", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument(
        "--tokens", type=at_least(1), default=NUM_TOKENS, help="of each answer of these lines"
    )
    parser.add_argument("--compare", type=at_least(0), default=0, metavar="LINES")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--interactive", type=at_least(0), default=0, metavar="REQUESTS")
    parser.add_argument("--model", choices=SHAPES, help="instead of the demo model")
    results = asyncio.run(run(parser.parse_args()))
    for name, figures in results.items():
        for what, value in figures.items():
            sys.stdout.write(f"{name}: {what}: {value:.3f}\n")


if __name__ == "__main__":
    main()
