"""`arriero batch`: answers the requests of a file and writes the answers to another file."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import server_batch
from ..arguments import EXIT_FAILED, Target, UsageError, make_parser, positive, run
from ..batch_lines import Line, answered, has_failed, parse_line, result_line
from ..output import print_json, say
from .generate import add_options, options_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from ...client import ArrieroError, Client


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a file of requests; a second run continues where the first one stopped."""
    return run(build_parser(), argv, _batch)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("batch", main.__doc__ or "")
    parser.add_argument(
        "input",
        help="file with one request per line: an OpenAI batch line, a JSON object, or a question "
        "as text",
    )
    parser.add_argument(
        "output",
        help="file for the results, one per line, in the order in which the requests end",
    )
    parser.add_argument(
        "--concurrency",
        type=positive,
        metavar="N",
        help="requests at once (a quarter more than the fleet's slots)",
    )
    parser.add_argument(
        "--server-side",
        action="store_true",
        help="upload the input and let the balancer run it; the same command picks up an "
        "interrupted run",
    )
    add_options(parser)
    return parser


async def _batch(arguments: argparse.Namespace, target: Target) -> int | None:
    from ...client import Retries

    defaults = options_of(arguments)
    if arguments.server_side:
        return await _on_server(arguments, target, defaults)
    async with target.client() as client:
        await client.readiness()  # a wrong address is not worth any patience
    with _open_input(arguments.input) as lines, _Output(Path(arguments.output)) as output:
        total = _compare(lines, output, defaults)
        lines.seek(0)
        # A batch has time: it waits for as long as its requests are refused for want of room.
        retries = Retries(patience=10_000)
        async with target.client(retries=retries) as client:
            todo = (line for line in _lines(lines, defaults) if not output.has(line))
            await _run(client, todo, output, total=total, at_once=arguments.concurrency)
    summary = {"lines": total, "failed": output.num_failed, "answered": output.num_answered}
    if arguments.json:
        print_json(summary)
    else:
        where = f"; their errors are in {arguments.output}" if output.num_failed else ""
        say(f"{total} lines, {output.num_failed} failed{where}")
    return EXIT_FAILED if output.num_failed else None


async def _on_server(
    arguments: argparse.Namespace, target: Target, defaults: dict[str, Any]
) -> int | None:
    from ...client import Retries

    if defaults or arguments.concurrency:
        raise UsageError("--server-side takes no other options: each line has its own")
    output = Path(arguments.output)
    async with target.client(retries=Retries(limit=20)) as client:
        with _bar() as bar:
            task = bar.add_task("", total=None, rate="")

            def progress(batch: dict[str, Any]) -> None:
                counts = batch["request_counts"]
                num_done = counts["completed"] + counts["failed"]
                bar.update(
                    task,
                    total=counts["total"] or None,
                    completed=num_done,
                    rate=batch["status"].replace("_", " "),
                )

            batch = await server_batch.run(
                client, target.url, Path(arguments.input), output, progress
            )
    return _report(batch, is_json=arguments.json)


def _report(batch: dict[str, Any], *, is_json: bool) -> int | None:
    counts, status = batch["request_counts"], batch["status"]
    if is_json:
        summary = {"batch": batch["id"], "status": status, "lines": counts["total"]}
        print_json(summary | {"failed": counts["failed"], "answered": counts["completed"]})
    else:
        faults = (batch["errors"] or {"data": []})["data"][:3]
        said = [f"{counts['total']} lines, {counts['failed']} failed"]
        said += [] if status == "completed" else [f"{batch['id']} is {status}"]
        said += [fault["message"] for fault in faults]
        say("; ".join(said))
    return EXIT_FAILED if counts["failed"] or status != "completed" else None


async def _run(
    client: "Client", todo: Iterator[Line], output: "_Output", *, total: int, at_once: int | None
) -> None:
    from contextlib import aclosing

    from ...client import ArrieroError
    from ...client.batches import run_batch

    async def concurrency() -> int:
        return at_once or await client.wanted_concurrency()

    with _bar() as bar:
        task = bar.add_task("", total=total, completed=output.num_done, rate="")
        results = run_batch(lambda line: _answer(client, line), todo, concurrency=concurrency)
        async with aclosing(results):
            async for result in results:
                if result.answer is None:  # refusals are lines, so nobody answers any more
                    raise result.error or ArrieroError("no result")
                output.add(result.answer)
                speed = bar.tasks[task].speed
                bar.update(task, advance=1, rate=f"{speed:.1f}/s" if speed else "")


def _bar() -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from ..screen import Screen

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=Screen(stderr=True),
        disable=not sys.stderr.isatty(),
    )


async def _answer(client: "Client", line: Line) -> str:
    """Send the request of a line and return its result line."""
    from ...client import RequestFailed

    if line.problem is not None:
        error = {"code": "invalid_request", "message": line.problem, "status": 400}
        return result_line(line, error=error)
    try:
        if line.url is None:
            return result_line(line, answer=asdict(await client.generate(**line.body)))
        return result_line(line, answer=await client.post(line.url, line.body))
    except RequestFailed as error:
        return result_line(line, error=_failure(error))


def _failure(error: "ArrieroError") -> dict[str, Any]:
    return {
        "code": getattr(error, "code", "unreachable"),
        "message": getattr(error, "message", str(error)),
        "status": getattr(error, "status", None),
    }


def _open_input(path: str) -> IO[str]:
    try:
        return Path(path).open(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _lines(texts: IO[str], defaults: dict[str, Any]) -> Iterator[Line]:
    """Yield the lines of an input. A later line with the same `custom_id` gets a problem."""
    seen: set[str] = set()
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        line = parse_line(number, text.rstrip("\n"), defaults)
        if line.custom_id is not None and line.custom_id in seen:
            line = Line(number, problem=f"custom_id: an earlier line has {line.custom_id!r}, too")
        elif line.custom_id is not None:
            seen.add(line.custom_id)
        yield line


def _compare(texts: IO[str], output: "_Output", defaults: dict[str, Any]) -> int:
    """Return the number of lines. Raises `UsageError` if `output` answers other requests."""
    total, left = 0, output.keys
    for total, line in enumerate(_lines(texts, defaults), start=1):  # noqa: B007
        left.discard(line.key)
        if output.answers_another(line):
            raise UsageError(
                f"{output.path} has an answer to another request for line {line.number}:  "
                "name another output, or remove it"
            )
    if left:
        raise UsageError(
            f"{output.path} has answers that no line of the input asks for, such as that to "
            f"{min(map(str, left))}: name another output, or remove it"
        )
    return total


class _Output:
    """The results. Each result is written in one piece, so that only the last can be
    incomplete.
    """

    def __init__(self, path: Path) -> None:
        self._done: dict[str | int, str] = {}
        """The digests of the lines that have results, by key."""
        self.path = path
        self.num_failed = 0
        self.num_answered = 0

    @property
    def num_done(self) -> int:
        return len(self._done)

    @property
    def keys(self) -> set[str | int]:
        """The keys of the lines that have results."""
        return set(self._done)

    def __enter__(self) -> "_Output":
        try:
            self._file = self.path.open("a+b")
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            self._read_back()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def has(self, line: Line) -> bool:
        return line.key in self._done

    def answers_another(self, line: Line) -> bool:
        """Return whether the result for `line` answers another request."""
        known = self._done.get(line.key)
        return bool(known) and known != line.digest

    def add(self, result: str) -> None:
        self._file.write(result.encode())
        self._file.flush()
        self.num_answered += 1
        self.num_failed += has_failed(result)

    def _read_back(self) -> None:
        """Read the existing results, and remove a last line that is incomplete."""
        self._file.seek(0)
        end = 0
        for raw in self._file:
            found = answered(raw.decode(errors="replace")) if raw.endswith(b"\n") else None
            if found is None:
                break
            key, digest = found
            self._done[key] = digest
            self.num_failed += has_failed(raw.decode())
            end += len(raw)
        if self._file.seek(0, 2) > end and self._file.seek(end) == end:
            rest = self._file.read()
            if b"\n" in rest.rstrip(b"\n"):
                raise UsageError(f"{self.path} contains other data than results; name another file")
            self._file.truncate(end)
        self._file.seek(0, 2)
