"""Loads and checks settings from flags, environment and file.

Flags win over the environment, the environment over the file. Every source gives text, so a value
means the same in each. An empty variable counts as not set.
"""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from os import environ as process_environment
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..log import redact
from ..validation import requirement
from .declaration import Setting, Settings, flag_of, settings_of
from .sources import Given, SettingsError, from_environment, from_file, from_flags

S = TypeVar("S", bound=Settings)


class TextAsked(Exception):
    """The user asked for a text, which is printed instead of running the program."""


def load_or_exit(cls: type[S], argv: Sequence[str] | None = None) -> S:
    """Return the settings of this process. Prints one line and exits with 2 if they are wrong."""
    is_command = Path(sys.argv[0]).name == "arriero"
    typed = f"arriero {cls.program}" if is_command else cls.program
    try:
        return load(cls, sys.argv[1:] if argv is None else argv, process_environment, typed)
    except TextAsked as asked:
        sys.stdout.write(str(asked))
        raise SystemExit(0) from None
    except SettingsError as error:
        sys.stderr.write(f"{typed}: {error}\n")
        raise SystemExit(2) from None


def load(
    cls: type[S], argv: Sequence[str], environ: Mapping[str, str], typed: str | None = None
) -> S:
    """Return the settings of `cls` from flags, environment and file.

    `typed` is the command that the help names (the program's name). Raises `SettingsError`, or
    `TextAsked` for `--help` and `--version`.
    """
    _answer(cls, argv, typed or cls.program)
    flags = from_flags(cls, argv)
    variables = from_environment(cls, environ)
    config = flags.pop("config", variables.pop("config", None))
    given = from_file(cls, str(config.text)) if config else {}
    given |= variables | flags
    try:
        return cls.model_validate({name: value.text for name, value in given.items()})
    except ValidationError as error:
        raise SettingsError(_first_finding(error, given)) from error


def _answer(cls: type[Settings], argv: Sequence[str], typed: str) -> None:
    if "--help" in argv or "-h" in argv:
        width = max(60, min(100, shutil.get_terminal_size().columns))
        raise TextAsked(help_text(cls, width, typed))
    if "--version" in argv:
        raise TextAsked(f"{cls.program} (arriero) {version('arriero')}\n")


def _first_finding(error: ValidationError, given: Mapping[str, Given]) -> str:
    finding, *others = error.errors(include_url=False)
    if not finding["loc"]:
        return requirement(finding)
    name = str(finding["loc"][0])
    origin = given[name].origin if name in given else None
    source = f" ({origin})" if origin else ""
    same = [finding, *(each for each in others if _is_of(each, finding))]
    words = " or ".join(dict.fromkeys(map(requirement, same))).replace(" or must be ", " or ")
    return redact(f"{flag_of(name)}{source}: {words}, not {finding['input']!r}")


def _is_of(other: ErrorDetails, finding: ErrorDetails) -> bool:
    """Return whether `other` is about the same value, which may have one of several types."""
    return other["loc"][:1] == finding["loc"][:1] and other["input"] is finding["input"]


# ---- what `--help` prints


RULES = (
    "Flags win over the environment, the environment over the file. The file's keys are the "
    "flags without the dashes in front. A DURATION is a number of seconds (10, 1.5) or has a "
    "unit (500ms, 30s, 2m, 1h)."
)


def help_text(cls: type[Settings], width: int, typed: str) -> str:
    """Return the text of `--help` in lines of at most `width` characters, if words allow it."""
    lines = [f"usage: {typed} [--FLAG VALUE ...]", "", *textwrap.wrap(cls.summary, width)]
    lines.append("")
    for setting in settings_of(cls):
        lines += _help_entry(setting, width)
    lines += ["  --version", *_indented("Print the version and exit.", width)]
    lines += ["  --help, -h", *_indented("Print this and exit.", width), ""]
    return "\n".join([*lines, *textwrap.wrap(RULES, width)]) + "\n"


def _help_entry(setting: Setting, width: int) -> list[str]:
    head = f"  {setting.flag} {setting.metavar}" + (" (repeatable)" if setting.repeats else "")
    sentence = f"{setting.description[0].upper()}{setting.description[1:]}."
    names = f"[default: {setting.default}] [{setting.variable}]"
    return [head, *_indented(sentence, width), *_indented(names, width)]


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
