"""What a picture costs the streams beside it: `python -m bench.pictures`.

Streams run all the while; then one more request comes: a question with a picture, or with a text,
or none at all. The figure is the longest pause of any stream from then on until that request's
first token. The ways take turns in each round. No text and no picture is used twice, so nothing is
cached.

Two kinds of projectors are tried, with the shape of CLIP's base model and random weights, so
encoding takes as long as with others: one like LLaVA's, of as many tokens as a picture has patches,
and one like Qwen-VL's, which merges four and gives them places in two dimensions.
"""

import argparse
import asyncio
import base64
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import gguf

from bench import prompts
from bench.answers import PATIENT, Answer, generate
from bench.figures import (
    FIRST_TOKEN,
    LONGEST_GAP,
    RequestsFailed,
    Rounds,
    longest_gap,
    median_of,
    ratio,
    shown,
    spread,
)
from bench.harness import Flags, at_least, finished, in_turn, print_table, save
from bench.models import CHATML, Q06
from bench.store import cache_folder
from integration_tests.daemons import Fleet
from tests.agent.engine.llama.projectors import (
    Sizes,
    png,
    write_llava,
    write_qwen,
    write_qwen_model,
)

Way = Literal["alone", "text", "picture"]
WAYS: tuple[Way, ...] = get_args(Way)
Kind = Literal["llava", "qwen"]
KINDS: tuple[Kind, ...] = get_args(Kind)

WARM_UP = 3.0
"""Seconds of all streams before anything is measured: what steps cost is learnt."""
ALONE_SECONDS = 3.0
"""For how long streams are watched with no other request beside them."""
AFTERWARDS = 1.0
"""Seconds in which a gap that has begun ends."""
SIDES: dict[Kind, int] = {"llava": 224, "qwen": 336}
"""The side of a picture, in pixels: it has 256 patches, or 576, which are 144 tokens."""
BESIDE = "tokens of a stream meanwhile"
PROMPT_TOKENS = "prompt tokens"
_VERSION = 1


@asynccontextmanager
async def streaming(fleet: Fleet, model: str, count: int) -> AsyncIterator[list[Answer]]:
    """Inside, `count` streams run. Raises `RequestsFailed` if one ends."""

    async def stream(number: int, answer: Answer) -> None:
        body: dict[str, Any] = {
            "model": model,
            "prompt": f"Of mule {number} there is this to tell:",
        }
        body |= {"max_tokens": 1_000_000, "ignore_eos": True, "n_discard": 1024}
        await generate(fleet, body, answer)
        raise RequestsFailed(f"a stream ended: {answer.end}")

    answers = [Answer() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream(n, answer)) for n, answer in enumerate(answers)]
        await asyncio.sleep(WARM_UP)
        if not all(answer.times for answer in answers):
            raise RequestsFailed("a stream has no text: take another model, or fewer streams")
        yield answers
        for task in tasks:
            task.cancel()


async def measured(
    fleet: Fleet, streams: list[Answer], way: Way, seed: int, given: argparse.Namespace, side: int
) -> dict[str, float]:
    """What a newcomer costs the streams, and how long it waits for its token."""
    found: dict[str, float] = {}
    since = time.perf_counter()
    if way == "alone":
        await asyncio.sleep(ALONE_SECONDS)
    else:
        draw = random.Random(f"{way} {seed}")
        text = prompts.text(draw, given.words if way == "text" else 8)
        answer = await generate(
            fleet, asking(text, png(side, side, seed) if way == "picture" else None)
        )
        found = {PROMPT_TOKENS: answer.usage["prompt_tokens"]}
    until = time.perf_counter()
    await asyncio.sleep(AFTERWARDS)
    found[LONGEST_GAP] = max(longest_gap(each.times, since, until) for each in streams)
    found[BESIDE] = min(sum(since < at <= until for at in each.times) for each in streams)
    return found if way == "alone" else found | {FIRST_TOKEN: until - since}


def asking(text: str, picture: bytes | None) -> dict[str, Any]:
    """The body of a question, about `picture` if there is one."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if picture is not None:
        url = "data:image/png;base64," + base64.b64encode(picture).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, *content]
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": 1, "ignore_eos": True, "stream": False}


# ---- models


def clip_base(model: Path, side: int) -> Sizes:
    """CLIP's base model, of pictures of `side` pixels, before `model`."""
    fields = gguf.GGUFReader(model).fields
    architecture = str(fields["general.architecture"].contents())
    out = int(fields[f"{architecture}.embedding_length"].contents())
    return Sizes(width=768, heads=12, feed_forward=3072, layers=12, patch=14, side=side, out=out)


def seeing(kind: Kind, model: Path) -> tuple[Path, Path]:
    """A model that takes pictures, and its projector; made once."""
    sizes = clip_base(model, SIDES[kind])
    name = f"{sizes.side}-{sizes.out}"
    if kind == "llava":
        return model, _made(f"clip-base-{name}", lambda path: write_llava(path, sizes))
    placed = _made(f"{model.stem}-places", lambda path: write_qwen_model(path, model))
    return placed, _made(f"qwen-base-{name}", lambda path: write_qwen(path, sizes))


def _made(name: str, write: Callable[[Path], Path]) -> Path:
    path = cache_folder() / f"{name}-{_VERSION}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path.with_suffix(".part")).rename(path)
    return path


# ---- rounds


async def run(kind: Kind, given: argparse.Namespace) -> Rounds:
    """All rounds with the same daemons and streams. Raises `RequestsFailed`."""
    model, projector = seeing(kind, given.model)
    rounds: Rounds = {way: [] for way in WAYS}
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(**PATIENT)
        await fleet.start_agent(
            model=model,
            projector=projector,
            chat_template=CHATML,
            slots=given.streams + 1,
            context_size=given.context_size,
            threads=given.threads,
            max_stall=given.max_stall,
        )
        async with streaming(fleet, model.stem, given.streams) as streams:
            for number, way in in_turn(WAYS, given.rounds + 1):
                seed = number * len(WAYS) + WAYS.index(way)
                found = await measured(fleet, streams, way, seed, given, SIDES[kind])
                if number > 1:  # in the first, memory is touched and costs are learnt
                    rounds[way].append(found)
                    gap = shown(LONGEST_GAP, found[LONGEST_GAP])
                    print(f"{kind}, round {number - 1}, {way}: longest gap {gap}", flush=True)
    return rounds


def rows(rounds: Rounds) -> Iterator[list[str]]:
    """One row for each way."""
    for way, each in rounds.items():
        is_alone = way == "alone"
        yield [
            "nothing" if is_alone else f"a {way}",
            spread([one[LONGEST_GAP] for one in each], partial(shown, LONGEST_GAP)),
            str(ratio(each, rounds["alone"], LONGEST_GAP)),
            f"{median_of(each, BESIDE):.0f}",
            "" if is_alone else shown(FIRST_TOKEN, median_of(each, FIRST_TOKEN)),
            "" if is_alone else f"{median_of(each, PROMPT_TOKENS):.0f}",
        ]


def main() -> None:
    flags = Flags("pictures", __doc__)
    flags.file(Q06.name)
    flags.rounds(3)
    flags.threads()
    flags.add_argument("--streams", type=at_least(1), default=3)
    flags.add_argument("--words", type=at_least(1), default=180, help="of the text")
    flags.add_argument("--context-size", type=at_least(256), default=4096)
    flags.add_argument("--max-stall", default="500ms", help="the agent's setting")
    given = flags.parse_args()
    found = {kind: finished(run(kind, given)) for kind in KINDS}
    columns = ("beside streams", LONGEST_GAP, "to alone", BESIDE, FIRST_TOKEN, PROMPT_TOKENS)
    for kind, rounds in found.items():
        print_table(kind, columns, rows(rounds))
    save("pictures", {"given": vars(given), "rounds": found})


if __name__ == "__main__":
    main()
