"""What a picture costs the streams beside it: `python -m bench.pictures`.

Streams run all the while; then one more request comes: a question with a picture, or with a text,
or none at all. The figure is the longest pause of any stream from then on until that request's
first token. The ways take turns in each round, and every other round in the other order. No text
and no picture is used twice, so nothing is cached.

Two kinds of projectors are tried, with the shape of CLIP's base model and random weights, so
encoding takes as long as with others: one like LLaVA's, of as many tokens as a picture has patches,
and one like Qwen-VL's, which merges four and gives them places in two dimensions.
"""

import argparse
import asyncio
import base64
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import gguf
from rich.table import Table

from bench import prompts
from bench.arguments import at_least, model_file
from bench.endless_streams import GENERATE, PATIENCE, EndlessStreams, Watched
from bench.figures import FIRST_TOKEN, LONGEST_GAP, median_of, ratio, shown
from bench.models import CHATML, Q06
from bench.store import cache_folder, save, wide_console
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

ALONE_SECONDS = 3.0
"""For how long streams are watched with no other request beside them."""
SIDES: dict[Kind, int] = {"llava": 224, "qwen": 336}
"""The side of a picture, in pixels: it has 256 patches, or 576, which are 144 tokens."""
BESIDE = "tokens of a stream meanwhile"
PROMPT_TOKENS = "prompt tokens"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Requests for one token each. `num_words` are those of the text."""

    fleet: Fleet
    num_words: int
    side: int

    async def come(self, way: Way, seed: int, measured: dict[str, float]) -> None:
        """Until the token is there; the number of the prompt's tokens goes to `measured`."""
        if way == "alone":
            await asyncio.sleep(ALONE_SECONDS)
            return
        draw = random.Random(f"{way} {seed}")
        text = prompts.text(draw, self.num_words if way == "text" else 8)
        picture = png(self.side, self.side, seed) if way == "picture" else None
        body = asking(text, picture)
        url = self.fleet.inference + GENERATE
        async with self.fleet.http.post(url, json=body, timeout=PATIENCE) as response:
            answer = await response.json()
        if response.status != 200:
            raise SystemExit(f"bench: {answer}")
        measured[PROMPT_TOKENS] = answer["usage"]["prompt_tokens"]


def asking(text: str, picture: bytes | None) -> dict[str, Any]:
    """The body of a question, about `picture` if there is one."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if picture is not None:
        url = "data:image/png;base64," + base64.b64encode(picture).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, *content]
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": 1, "ignore_eos": True, "stream": False}


def figures(way: Way, watched: Watched, measured: dict[str, float]) -> dict[str, float]:
    """The figures of one measurement of a way."""
    found = {LONGEST_GAP: watched.gap, BESIDE: float(watched.num_tokens)}
    return found if way == "alone" else {**found, FIRST_TOKEN: watched.seconds, **measured}


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
    if kind == "llava":
        return model, _made(f"clip-base-{sizes.side}-{sizes.out}", partial(_llava, sizes))
    placed = _made(f"{model.stem}-places", partial(_placed, model))
    return placed, _made(f"qwen-base-{sizes.side}-{sizes.out}", partial(_qwen, sizes))


def _llava(sizes: Sizes, path: Path) -> Path:
    return write_llava(path, sizes)


def _qwen(sizes: Sizes, path: Path) -> Path:
    return write_qwen(path, sizes)


def _placed(model: Path, path: Path) -> Path:
    return write_qwen_model(path, model)


def _made(name: str, write: Callable[[Path], Path]) -> Path:
    path = cache_folder() / f"{name}-{_VERSION}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path.with_suffix(".part")).rename(path)
    return path


# ---- rounds


Results = dict[Way, list[dict[str, float]]]


async def run(kind: Kind, arguments: argparse.Namespace) -> Results:
    """All rounds with the same daemons and streams."""
    model, projector = seeing(kind, arguments.model)
    results: Results = {way: [] for way in WAYS}
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=600)
        await fleet.start_agent(
            model=model,
            projector=projector,
            chat_template=CHATML,
            slots=arguments.streams + 1,
            context_size=arguments.context_size,
            threads=arguments.threads,
            max_stall=arguments.max_stall,
        )
        newcomer = Newcomer(fleet, arguments.words, SIDES[kind])
        streams = EndlessStreams(fleet, model.stem)
        async with streams.running(arguments.streams):
            for number in range(arguments.rounds + 1):
                for place, way in enumerate(WAYS if number % 2 else WAYS[::-1]):
                    measured: dict[str, float] = {}
                    seed = number * len(WAYS) + place
                    watched = await streams.watched(partial(newcomer.come, way, seed, measured))
                    if number:  # in the first, memory is touched and costs are learnt
                        results[way].append(figures(way, watched, measured))
                if number:
                    _report(kind, number, results)
    return results


def _report(kind: Kind, number: int, results: Results) -> None:
    gaps = ", ".join(f"{way} {shown(LONGEST_GAP, results[way][-1][LONGEST_GAP])}" for way in WAYS)
    print(f"{kind}, round {number}: longest gap: {gaps}", flush=True)


def show(kind: Kind, results: Results) -> None:
    columns = ("beside streams", LONGEST_GAP, "from to", "against alone", BESIDE)
    table = Table(*columns, FIRST_TOKEN, PROMPT_TOKENS, box=None, title=kind)
    for way, rounds in results.items():
        is_alone = way == "alone"
        table.add_row(
            "nothing" if is_alone else f"a {way}",
            shown(LONGEST_GAP, median_of(rounds, LONGEST_GAP)),
            _spread([each[LONGEST_GAP] for each in rounds]),
            str(ratio(rounds, results["alone"], LONGEST_GAP)),
            f"{median_of(rounds, BESIDE):.0f}",
            "" if is_alone else shown(FIRST_TOKEN, median_of(rounds, FIRST_TOKEN)),
            "" if is_alone else f"{median_of(rounds, PROMPT_TOKENS):.0f}",
        )
    wide_console().print(table)


def _spread(gaps: Sequence[float]) -> str:
    return f"{shown(LONGEST_GAP, min(gaps))} to {shown(LONGEST_GAP, max(gaps))}"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.pictures")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument(
        "--model", type=model_file, default=Q06.name, help="q06, or a GGUF file of it or of Llama"
    )
    parser.add_argument("--threads", type=at_least(1), default=os.cpu_count() or 1)
    parser.add_argument("--streams", type=at_least(1), default=3)
    parser.add_argument("--words", type=at_least(1), default=180, help="of the text")
    parser.add_argument("--context-size", type=at_least(256), default=4096)
    parser.add_argument("--max-stall", default="500ms", help="the agent's setting")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    results = {kind: asyncio.run(run(kind, arguments)) for kind in KINDS}
    for kind in KINDS:
        show(kind, results[kind])
    facts = {name: str(value) for name, value in vars(arguments).items()}
    save("pictures", {"arguments": facts, "rounds": results})


if __name__ == "__main__":
    main()
