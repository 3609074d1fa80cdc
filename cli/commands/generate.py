"""`arriero generate`: answers one question, and prints the answer while it is generated."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...shared.printable import printable
from ..arguments import Target, UsageError, make_parser, positive, run
from ..output import print_json, say
from ..waiting_line import WaitingLine

if TYPE_CHECKING:
    from ...client.answers import Event


def main(argv: Sequence[str] | None = None) -> int:
    """Answer one prompt, from the arguments or from stdin."""
    return run(build_parser(), argv, _generate)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("generate", main.__doc__ or "")
    parser.add_argument(
        "prompt", nargs="?", help="the question; without it, or with -, it is read from stdin"
    )
    parser.add_argument("--system", help="the system message")
    parser.add_argument(
        "--raw", action="store_true", help="send the prompt without the chat template"
    )
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every command which generates takes."""
    parser.add_argument("--model", help="the model to ask")
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N", help="maximum tokens of the answer"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="sampling temperature; 0 takes the likeliest token",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="random seed, for a reproducible answer"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=JSON",
        help="any other field of /api/v1/generate; repeatable",
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that were given. Raises `UsageError`."""
    options: dict[str, Any] = {}
    for name in ("model", "max_tokens", "temperature", "seed"):
        if (value := getattr(arguments, name)) is not None:
            options[name] = value
    for word in arguments.set:
        field, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set: must be FIELD=JSON such as top_k=20, not {word!r}")
        try:
            options[field] = json.loads(text)
        except ValueError as error:
            raise UsageError(f"--set {field}: must be JSON: {error}") from error
    return options


async def _generate(arguments: argparse.Namespace, target: Target) -> int | None:

    request = options_of(arguments) | _question(arguments)
    async with target.client() as client:
        if arguments.json:
            print_json(asdict(await client.generate(**request)))
            return None
        with WaitingLine(sys.stderr) as waits:
            async with client.stream(**request) as events:
                async for event in events:
                    _show(event, waits)
    sys.stdout.write("\n")
    return None


def _show(event: "Event", waits: WaitingLine) -> None:
    from ...client import Reading, Token, Waiting, Warned

    if isinstance(event, Waiting | Reading):
        waits.show(event)
        return
    waits.clear()
    if isinstance(event, Warned):
        say(f"warning: {event.message}")
    elif isinstance(event, Token) and event.kind != "reasoning":
        # Programs get what the model wrote; a terminal would obey it.
        is_shown = sys.stdout.isatty()
        sys.stdout.write(printable(event.text, keep="\n\t") if is_shown else event.text)
        sys.stdout.flush()


def _question(arguments: argparse.Namespace) -> dict[str, Any]:
    text = arguments.prompt
    if text in (None, "-"):
        if text is None and sys.stdin.isatty():
            raise UsageError("the question is missing: give it as an argument or on stdin")
        text = sys.stdin.read()
    if not text.strip() and not arguments.raw:
        raise UsageError("the question is empty")
    if arguments.raw:
        if arguments.system is not None:
            raise UsageError("--system: a raw prompt has no messages")
        return {"prompt": text}
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    return {"messages": [*system, {"role": "user", "content": text}]}
