"""The arguments that all commands take, and how a command runs.

The arguments are the balancer's addresses, the key, and the output format. Every failure of a
command becomes one line on stderr and an exit code.
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from ..client.client import INFERENCE_URL, MANAGEMENT_URL
from ..client.errors import ArrieroError, RequestFailed, Unreachable
from ..shared.nearest import meant
from .output import say

if TYPE_CHECKING:
    from ..client import Client, Retries

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

EPILOG = """exit codes: 0 success, 1 failure, 2 wrong arguments, 3 no connection, 130 Ctrl-C"""


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, with a suggestion."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with `EXIT_USAGE`."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message}{self._meant(message)}\n")

    def _meant(self, message: str) -> str:
        choice = re.search(r"invalid choice: '([^']*)'", message)
        if choice is not None:
            words = [str(each) for action in self._actions for each in action.choices or ()]
            return f"; {meant(choice[1], words)}"
        unknown = re.search(r"unrecognized arguments: (-\S+)", message)
        if unknown is not None:
            word = unknown[1].partition("=")[0]
            return f"; {meant(word, self._option_string_actions)}"
        return f"; see {self.prog} --help"


class UsageError(Exception):
    """The arguments are wrong. The message is one line: the argument, and what is valid."""


@dataclass(frozen=True, slots=True)
class Target:
    """The balancer's addresses, and the key and authority to use."""

    url: str
    management: str
    key: str | None = None
    tls_ca: str | None = None

    def client(self, retries: "Retries | None" = None) -> "Client":
        """Return a client of the balancer."""
        from ..client import Client  # late: `--help` does without it, and it takes a while

        return Client(
            self.url,
            management=self.management,
            key=self.key,
            tls_ca=self.tls_ca,
            retries=retries,
        )


def make_parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that every command takes."""
    parser = Parser(
        prog=f"arriero {command}",
        description=description,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    add_common(parser)
    return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add `--url`, `--management`, `--key-file`, `--tls-ca` and `--json`."""
    common = parser.add_argument_group("common")
    common.add_argument(
        "--url",
        metavar="URL",
        help=f"inference address (ARRIERO_URL; {INFERENCE_URL})",
    )
    common.add_argument(
        "--management",
        metavar="URL",
        help=f"management address (ARRIERO_MANAGEMENT; {MANAGEMENT_URL})",
    )
    common.add_argument(
        "--key-file",
        metavar="FILE",
        help="file with the access key; without it, ARRIERO_KEY has the key",
    )
    common.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="file with authorities to trust for https:// (ARRIERO_TLS_CA; else the system's)",
    )
    common.add_argument("--json", action="store_true", help="print JSON, for programs")


def target_of(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Target:
    """Return the target of flags and environment; flags win. Raises `UsageError`."""
    return Target(
        _url("--url", arguments.url or environ.get("ARRIERO_URL") or INFERENCE_URL),
        _url(
            "--management",
            arguments.management or environ.get("ARRIERO_MANAGEMENT") or MANAGEMENT_URL,
        ),
        _key(arguments.key_file, environ),
        _tls_ca(arguments.tls_ca or environ.get("ARRIERO_TLS_CA") or None),
    )


def _url(flag: str, text: str) -> str:
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise UsageError(f"{flag}: must be a URL such as {INFERENCE_URL}, not {text!r}")
    return text.rstrip("/")


def _key(file: str | None, environ: Mapping[str, str]) -> str | None:
    if file is None:
        return environ.get("ARRIERO_KEY") or None
    try:
        key = Path(file).read_text().strip()
    except OSError as error:
        raise UsageError(f"--key-file: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--key-file: {file} is not text, so it has no key") from error
    if not key:
        raise UsageError(f"--key-file: {file} is empty; it should have a key")
    return key


def _tls_ca(file: str | None) -> str | None:
    if file is not None:
        from ..client.http import tls_of  # late: most have none, and it takes a while

        try:
            tls_of(file)
        except ValueError as error:
            raise UsageError(str(error).replace("tls_ca", "--tls-ca", 1)) from error
    return file


def positive(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def positives(text: str) -> Sequence[int]:
    """Parse whole numbers separated by commas, for argparse."""
    return [positive(word) for word in text.split(",")]


# ---- running a command

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
    """Drop further output, because its reader is gone and Python flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE
