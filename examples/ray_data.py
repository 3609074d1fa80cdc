"""Parquet through a fleet with Ray Data: a column of prompts in, answers out.

    pip install . 'ray[data]'
    python examples/ray_data.py prompts/ answers/ --url http://127.0.0.1:8061

The input has the columns `id` and `prompt`, the output `id`, `answer` and `error`. Started again
after a kill, it asks only what has no answer yet. Requests that are refused for want of room wait
in their actor and are sent again, so Ray reads no more input than the fleet takes.
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray

from arriero.client import Client, Retries

Columns = dict[str, Any]
"""A batch of rows: an array for each column."""


class Ask:
    """An actor: one batch of rows after the other, each over connections of its own."""

    def __init__(self, url: str, key: str | None, at_once: int, options: dict[str, Any]) -> None:
        self._url = url
        self._key = key
        self._at_once = at_once
        self._options = {"priority": "batch", **options}

    def __call__(self, rows: Columns) -> Columns:
        """The answers to these rows."""
        answers = asyncio.run(self._answers(list(rows["prompt"])))
        texts, errors = zip(*answers, strict=True)
        return {
            "id": rows["id"],
            "answer": np.array(texts, dtype=object),
            "error": np.array(errors, dtype=object),
        }

    async def _answers(self, prompts: list[str]) -> list[tuple[str | None, str | None]]:
        requests = [
            {"messages": [{"role": "user", "content": prompt}], **self._options}
            for prompt in prompts
        ]
        found: list[tuple[str | None, str | None]] = [(None, "not asked")] * len(requests)
        # The queue may be full for hours while others work: a batch job has time.
        async with Client(self._url, key=self._key, retries=Retries(patience=10_000)) as client:
            async for result in client.batch(requests, concurrency=self._at_once):
                text = None if result.answer is None else result.answer.text
                error = None if result.error is None else str(result.error)
                found[result.index] = (text, error)
        return found


def finished(output: Path) -> set[Any]:
    """The ids that have an answer. A file that a kill cut off is deleted: it is written anew."""
    done: set[Any] = set()
    for path in output.rglob("*.parquet"):
        try:
            table = pq.read_table(path, columns=["id", "error"])
        except (OSError, ValueError):
            path.unlink()
            continue
        rows = zip(table["id"].to_pylist(), table["error"].to_pylist(), strict=True)
        done |= {id for id, error in rows if error is None}
    return done


def run(arguments: argparse.Namespace) -> None:
    """Ask what is not answered yet; each batch of rows is written when it is answered."""
    done = finished(arguments.output)
    rows = ray.data.read_parquet(str(arguments.input), columns=["id", "prompt"])
    key = os.environ.get("ARRIERO_KEY")
    options = {"max_tokens": arguments.max_tokens}
    todo = rows.filter(lambda row: row["id"] not in done)
    # A block is what is written as one file, and what a kill costs each actor.
    answers = todo.repartition(target_num_rows_per_block=arguments.rows).map_batches(
        Ask,
        fn_constructor_args=(arguments.url, key, arguments.at_once, options),
        batch_size=arguments.rows,
        compute=ray.data.ActorPoolStrategy(size=arguments.actors),
        num_cpus=0.1,  # actors wait for the fleet and compute nothing
    )
    answers.write_parquet(str(arguments.output))


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description="Parquet through a fleet with Ray Data")
    parser.add_argument("input", type=Path, help="Parquet files with `id` and `prompt`")
    parser.add_argument("output", type=Path, help="folder for `id`, `answer` and `error`")
    parser.add_argument("--url", default="http://127.0.0.1:8061")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=8, help="requests of each actor")
    parser.add_argument("--rows", type=int, default=64, help="rows that are written together")
    parser.add_argument("--max-tokens", type=int, default=256)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
