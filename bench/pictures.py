"""What a picture costs the streams beside it: `python -m bench.pictures`.

Seven streams run; then one more request comes: a question with a picture, or with a text of about
as many tokens, or none at all. The figure is the longest pause of any stream from then on until
that request's first token. The three ways take turns in each round, and every other round in the
other order. No text and no picture is used twice, so nothing is cached.

The projector has the shape of CLIP's base model, which most LLaVA-like ones have or exceed, with
random weights: encoding takes as long as with others.
"""

import argparse
import asyncio
import base64
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import gguf
import uvloop
from rich.table import Table

from bench import prompts
from bench.arguments import at_least, model_file
from bench.client import Client
from bench.dialects import NATIVE, Dialect, Wish
from bench.figures import FIRST_TOKEN, LONGEST_GAP, RequestsFailed, check, median_of, ratio, shown
from bench.models import Q06
from bench.sample import Sample
from bench.sides import Load, start_ours
from bench.stall import longest_gap
from bench.store import cache_folder, save, wide_console
from tests.agent.engine.llama.projectors import Sizes, png, write_llava

Way = Literal["alone", "text", "picture"]
WAYS: tuple[Way, ...] = get_args(Way)

NUM_STREAMS = 7
STREAM_WORDS = 32
QUESTION_TOKENS = 8
ALONE_SECONDS = 5.0
"""For how long streams are watched with nobody beside them."""
BESIDE = "tokens of a stream meanwhile"
PROMPT_TOKENS = "prompt tokens"
_UNDERWAY_AFTER = 8
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content"
    " + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)


@dataclass(frozen=True, slots=True)
class Work:
    """`num_words` of the text beside the streams, each of which brings `num_tokens`."""

    num_tokens: int
    num_words: int
    side: int
    """Of a picture, in pixels."""


def clip_base(model: Path) -> Sizes:
    """CLIP's base model, of pictures of 336 pixels, before `model`."""
    fields = gguf.GGUFReader(model).fields
    architecture = str(fields["general.architecture"].contents())
    out = int(fields[f"{architecture}.embedding_length"].contents())
    return Sizes(width=768, heads=12, feed_forward=3072, layers=12, patch=14, side=336, out=out)


def projector(sizes: Sizes) -> Path:
    """Made once."""
    path = cache_folder() / f"clip-base-{sizes.out}-1.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_llava(path.with_suffix(".part"), sizes).rename(path)
    return path


def asking(picture: bytes) -> Dialect:
    """The native API, with the prompt as a question about `picture`."""
    url = "data:image/png;base64," + base64.b64encode(picture).decode()

    def body(wish: Wish) -> dict[str, Any]:
        image = {"type": "image_url", "image_url": {"url": url}}
        content = [image, {"type": "text", "text": wish.prompt}]
        plain = {name: value for name, value in NATIVE.body(wish).items() if name != "prompt"}
        return {"messages": [{"role": "user", "content": content}], **plain}

    return Dialect(NATIVE.path, NATIVE.token_mark, body, NATIVE.read_end)


async def measure(client: Client, way: Way, seed: int, work: Work) -> dict[str, float]:
    """One way, once. Raises `RequestsFailed`."""
    wishes = prompts.uniform(seed, NUM_STREAMS, num_words=STREAM_WORDS, num_tokens=work.num_tokens)
    async with asyncio.TaskGroup() as group:
        started = [asyncio.Event() for _ in wishes]
        streams = [
            group.create_task(client.ask(wish, underway=event, underway_after=_UNDERWAY_AFTER))
            for wish, event in zip(wishes, started, strict=True)
        ]
        for event in started:
            await event.wait()
        since = time.perf_counter()
        newcomer = None
        if way == "alone":
            await asyncio.sleep(ALONE_SECONDS)
        else:
            newcomer = await _newcomer(client, way, seed, work)
        until = time.perf_counter()
    samples = [stream.result() for stream in streams]
    return figures(samples, newcomer, since=since, until=until)


async def _newcomer(client: Client, way: Way, seed: int, work: Work) -> Sample:
    draw = random.Random(f"{way} {seed}")
    if way == "text":
        return await client.ask(Wish(prompts.text(draw, work.num_words), QUESTION_TOKENS))
    picture = await asyncio.to_thread(png, work.side, work.side, seed)
    return await client.speaking(asking(picture)).ask(Wish(prompts.text(draw, 8), QUESTION_TOKENS))


def figures(
    streams: Sequence[Sample], newcomer: Sample | None, *, since: float, until: float
) -> dict[str, float]:
    """The longest gap of any stream, and how many tokens the slowest got meanwhile.

    Until the newcomer's first token, or, where there is none, until `until`. Raises
    `RequestsFailed`, also when a stream was over before that.
    """
    check([*streams, *([newcomer] if newcomer else [])])
    if newcomer is not None:
        since, until = newcomer.sent_at, newcomer.token_times[0]
    if any(stream.token_times[-1] < until for stream in streams):
        raise RequestsFailed("a stream was over too early: it needs more tokens (--tokens)")
    found = {
        LONGEST_GAP: max(longest_gap(stream, since, until) for stream in streams),
        BESIDE: min(sum(since < at <= until for at in one.token_times) for one in streams),
    }
    if newcomer is not None:
        found |= {FIRST_TOKEN: newcomer.first_token, PROMPT_TOKENS: newcomer.num_prompt_tokens}
    return found


async def run(arguments: argparse.Namespace) -> dict[Way, list[dict[str, float]]]:
    """All rounds with the same daemons. Raises `RequestsFailed`."""
    results: dict[Way, list[dict[str, float]]] = {way: [] for way in WAYS}
    sizes = clip_base(arguments.model)
    work = Work(arguments.tokens, arguments.words, sizes.side)
    load = Load(arguments.model, NUM_STREAMS + 1, arguments.context_size, arguments.threads)
    async with AsyncExitStack() as stack:
        eyes = {"projector": projector(sizes), "chat_template": _CHATML}
        side = await start_ours(stack, load, max_stall=arguments.max_stall, **eyes)
        for way in WAYS:  # what steps cost is learnt, memory is touched
            await measure(side.client, way, 0, work)
        for number in range(1, arguments.rounds + 1):
            for place, way in enumerate(WAYS if number % 2 else WAYS[::-1]):
                seed = number * len(WAYS) + place
                results[way].append(await measure(side.client, way, seed, work))
            _report(number, results)
    return results


def _report(number: int, results: dict[Way, list[dict[str, float]]]) -> None:
    gaps = ", ".join(f"{way} {shown(LONGEST_GAP, results[way][-1][LONGEST_GAP])}" for way in WAYS)
    print(f"round {number}: longest gap: {gaps}", flush=True)


def show(results: dict[Way, list[dict[str, float]]]) -> None:
    columns = ("beside streams", LONGEST_GAP, "against alone", BESIDE, FIRST_TOKEN, PROMPT_TOKENS)
    table = Table(*columns, box=None)
    for way, rounds in results.items():
        is_alone = way == "alone"
        table.add_row(
            "nothing" if is_alone else f"a {way}",
            shown(LONGEST_GAP, median_of(rounds, LONGEST_GAP)),
            str(ratio(rounds, results["alone"], LONGEST_GAP)),
            f"{median_of(rounds, BESIDE):.0f}",
            "" if is_alone else shown(FIRST_TOKEN, median_of(rounds, FIRST_TOKEN)),
            "" if is_alone else f"{median_of(rounds, PROMPT_TOKENS):.0f}",
        )
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.pictures")
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument(
        "--model", type=model_file, default=Q06.name, help="q06, tiny, or a GGUF file"
    )
    parser.add_argument("--threads", type=at_least(1), default=os.cpu_count() or 1)
    parser.add_argument("--tokens", type=at_least(16), default=384, help="of each stream")
    parser.add_argument("--words", type=at_least(1), default=400, help="of the text")
    parser.add_argument("--context-size", type=at_least(256), default=1024)
    parser.add_argument("--max-stall", default="500ms", help="the agent's setting")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    try:
        results = uvloop.run(run(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(results)
    facts = {name: str(value) for name, value in vars(arguments).items()}
    save("pictures", {"arguments": facts, "rounds": results})


if __name__ == "__main__":
    main()
