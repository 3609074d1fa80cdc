"""`arriero bench`: measures an OpenAI-compatible server with several numbers of clients."""

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import EXIT_FAILED, Target, UsageError, make_parser, positive, positives, run
from ..load import Level, Timed, ask, summed_up
from ..output import console, print_json

if TYPE_CHECKING:
    import aiohttp

WORDS = ("lake", "stone", "river", "cloud", "paper", "green", "window", "market", "silver", "music")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure time to first token, time between tokens and throughput of a server."""
    return run(build_parser(), argv, _bench)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("bench", main.__doc__ or "")
    parser.add_argument("server", nargs="?", metavar="URL", help="the server (as --url)")
    parser.add_argument("--model", help="the model to ask (the first that the server lists)")
    parser.add_argument(
        "--concurrency",
        type=positives,
        default=(1, 2, 4, 8),
        metavar="N,…",
        help="numbers of clients at once, one step for each number (1,2,4,8)",
    )
    parser.add_argument(
        "--requests", type=positive, metavar="N", help="requests of each step (4 for each client)"
    )
    parser.add_argument(
        "--prompt-words", type=positive, default=64, metavar="N", help="words of each prompt (64)"
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=64,
        metavar="N",
        help="maximum tokens of each answer (64)",
    )
    parser.add_argument(
        "--no-stream",
        action="store_true",
        help="request answers in one piece, without a time to first token",
    )
    parser.add_argument("--plot", metavar="FILE", help="write a plot of the throughput, as SVG")
    return parser


async def _bench(arguments: argparse.Namespace, target: Target) -> int | None:
    import aiohttp

    from ...client import Client
    from ...client.http import tls_of

    url = (arguments.server or target.url).rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {target.key}"} if target.key else {}
    async with Client(url, key=target.key, tls_ca=target.tls_ca) as client:
        model = arguments.model or _first(await client.models(), url)
    levels: list[Level] = []
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0, ssl=tls_of(target.tls_ca))
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for at_once in arguments.concurrency:
            body = {"model": model, "max_tokens": arguments.max_tokens}
            if not arguments.no_stream:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            requests = arguments.requests or 4 * at_once
            load = _Load(session, url, headers, body, arguments.prompt_words)
            levels.append(await load.run(at_once, requests))
    _tell(arguments, model, levels)
    return EXIT_FAILED if any(level.failed for level in levels) else None


def _first(models: list[dict[str, Any]], url: str) -> str:
    if not models:
        raise UsageError(f"{url} serves no model; load one, or name one with --model")
    return str(models[0]["id"])


class _Load:
    """Sends prompts without a common prefix, so that no prefix cache helps."""

    def __init__(
        self,
        session: "aiohttp.ClientSession",
        url: str,
        headers: dict[str, str],
        body: dict[str, Any],
        num_words: int,
    ) -> None:
        self._session = session
        self._url = f"{url}/v1/chat/completions"
        self._headers = headers
        self._body = body
        self._num_words = num_words

    async def run(self, at_once: int, requests: int) -> Level:
        left = iter(range(requests))
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._client(left)) for _ in range(at_once)]
        answers = [answer for client in clients for answer in client.result()]
        return summed_up(at_once, answers, time.monotonic() - start)

    async def _client(self, left: Any) -> list[Timed]:
        answers = []
        for _ in left:
            prompt = " ".join(random.choices(WORDS, k=self._num_words))
            body = self._body | {"messages": [{"role": "user", "content": prompt}]}
            answers.append(await ask(self._session, self._url, body, self._headers))
        return answers


def _tell(arguments: argparse.Namespace, model: str, levels: list[Level]) -> None:

    if arguments.json:
        print_json({"model": model, "levels": [asdict(level) for level in levels]})
    else:
        screen = console()
        screen.print(_table(model, levels))
        if problem := next((level.problem for level in levels if level.problem), None):
            screen.print(problem, style="red", soft_wrap=True)
    if arguments.plot:
        labels = [str(level.concurrency) for level in levels]
        values = [level.tokens_per_second for level in levels]
        Path(arguments.plot).write_text(line_plot(model, labels, values, unit="tokens/s"))


def _table(model: str, levels: list[Level]) -> Any:
    from rich.table import Table

    title = f"{model} (times in ms)"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), title_justify="left")
    names = ("clients", "asked", "failed", "req/s", "tok/s")
    for name in (*names, "first", "p95", "between", "p95", "whole", "p95", "p99"):
        table.add_column(name, justify="right")
    for level in levels:
        times = (
            *(level.first_p50, level.first_p95, level.between_p50, level.between_p95),
            *(level.total_p50, level.total_p95, level.total_p99),
        )
        table.add_row(
            str(level.concurrency),
            str(level.requests),
            str(level.failed),
            f"{level.requests_per_second:.2f}",
            f"{level.tokens_per_second:.1f}",
            *("-" if each is None else f"{each * 1000:.0f}" for each in times),
        )
    return table


# ---- the plot


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 60, 50


def line_plot(title: str, labels: Sequence[str], values: Sequence[float], *, unit: str) -> str:
    """Return an SVG of `values` over evenly spaced `labels`; the axis begins at zero."""
    top = max(values, default=0) or 1.0
    step = (WIDTH - LEFT - 20) / max(1, len(values) - 1)
    points = [
        (LEFT + index * step, HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 40))
        for index, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle">{value:.3g}</text>'
        f'<text x="{x:.1f}" y="{HEIGHT - 25}" text-anchor="middle">{escape(label)}</text>'
        for (x, y), value, label in zip(points, values, labels, strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#333">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)} ({escape(unit)})</text>'
        f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - 20}" y2="{HEIGHT - BOTTOM}" '
        f'stroke="#999"/><polyline points="{path}" fill="none" stroke="#2563eb" '
        f'stroke-width="2"/>{marks}<text x="{WIDTH / 2}" y="{HEIGHT - 5}" '
        f'text-anchor="middle">clients at once</text></svg>\n'
    )
