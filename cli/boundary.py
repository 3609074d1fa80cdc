"""Runs a command: every failure becomes one line on stderr and an exit code."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from ..client.errors import ArrieroError, RequestFailed, Unreachable
from .arguments import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, Target, UsageError, target_of
from .output import say

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
    """Run a command that has its own event loops, or none. Returns the exit code."""
    arguments = parser.parse_args(argv)
    try:
        return main(arguments, target_of(arguments)) or 0
    except UsageError as error:
        return _say(parser, error, EXIT_USAGE)
    except ArrieroError as error:
        return _say(parser, sentence_of(error), exit_code_of(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _quiet()
        return _say(parser, error, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


_WRONG = ("invalid_request", "not_found", "model_not_found")
"""Codes of errors that wrong arguments cause: an invalid value, or an unknown name."""


def exit_code_of(error: ArrieroError) -> int:
    """Return the exit code of a command that failed with `error`."""
    if isinstance(error, Unreachable):
        return EXIT_UNREACHABLE
    is_wrong = isinstance(error, RequestFailed) and error.code in _WRONG
    return EXIT_USAGE if is_wrong else EXIT_FAILED


def sentence_of(error: ArrieroError) -> str:
    """Return the error with advice."""
    if isinstance(error, Unreachable):
        return f"{error}; is the balancer running there?"
    if isinstance(error, RequestFailed) and error.code == "unauthorized":
        return f"{error}; the key comes from --key-file or ARRIERO_KEY"
    return str(error)


def _say(parser: argparse.ArgumentParser, problem: object, code: int) -> int:
    say(f"{parser.prog}: {problem}")
    return code


def _quiet() -> int:
    """Drop further output, because its reader is gone: Python flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE
