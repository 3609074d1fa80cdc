"""Runs a command: everything that goes wrong becomes one line on stderr and an exit code."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from ..client.errors import ArrieroError, RequestFailed, Unreachable
from .arguments import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, Target, UsageError, target_of

EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

Main = Callable[[argparse.Namespace, Target], Awaitable[int | None]]


def run(parser: argparse.ArgumentParser, argv: Sequence[str] | None, main: Main) -> int:
    """Parse `argv` and run `main` on an event loop. Returns the exit code."""

    def in_loop(arguments: argparse.Namespace, target: Target) -> int | None:
        async def awaited() -> int | None:
            return await main(arguments, target)

        return asyncio.run(awaited())

    return run_plain(parser, argv, in_loop)


def run_plain(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    main: Callable[[argparse.Namespace, Target], int | None],
) -> int:
    """Runs a command that has event loops of its own."""
    arguments = parser.parse_args(argv)
    try:
        return main(arguments, target_of(arguments)) or 0
    except UsageError as error:
        return _say(parser, error, EXIT_USAGE)
    except Unreachable as error:
        return _say(parser, f"{error}; is the balancer running there?", EXIT_UNREACHABLE)
    except ArrieroError as error:
        return _say(parser, f"{error}{_hint(error)}", EXIT_FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _quiet()
        return _say(parser, error, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _hint(error: ArrieroError) -> str:
    if isinstance(error, RequestFailed) and error.code == "unauthorized":
        return "; the key comes from --key-file or ARRIERO_KEY"
    return ""


def _say(parser: argparse.ArgumentParser, problem: object, code: int) -> int:
    sys.stderr.write(f"{parser.prog}: {problem}\n")
    return code


def _quiet() -> int:
    """The reader of the output has left: at exit, Python would try to write the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE
