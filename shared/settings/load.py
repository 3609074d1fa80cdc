"""Loads and checks settings from flags, environment and file.

Flags win over the environment, the environment over the file. Every source gives text, so a value
means the same in each. An empty variable counts as not set.
"""

import argparse
import re
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import environ as process_environment
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..log import redact
from ..nearest import meant
from ..validation import requirement
from .declaration import Setting, Settings, flag_of, prefix_of, settings_of

_SERVICE_LINK = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
"""Variables that Kubernetes sets in containers for a Service with the program's name."""


class SettingsError(Exception):
    """The settings are wrong. The message is one line: the wrong setting, and what is valid."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as text. `origin` names its source; a value without an origin comes from
    its flag.
    """

    text: str | list[str]
    origin: str | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        raise SettingsError(message.replace("expected one argument", "needs a value"))


def from_flags(cls: type[Settings], argv: Sequence[str]) -> dict[str, Given]:
    """Return the settings in the arguments. Raises `SettingsError` that names an unknown flag."""
    parser = _Parser(prog=cls.program, add_help=False, allow_abbrev=False)
    settings = settings_of(cls)
    for setting in settings:
        if setting.is_switch:
            parser.add_argument(setting.flag, dest=setting.name, nargs="?", const="true")
            continue
        action = "append" if setting.repeats else "store"
        parser.add_argument(setting.flag, dest=setting.name, action=action)
    found, unknown = parser.parse_known_args(argv)
    if unknown:
        raise SettingsError(_unknown_flag(unknown[0], [setting.flag for setting in settings]))
    return {name: Given(text) for name, text in vars(found).items() if text is not None}


def _unknown_flag(argument: str, flags: list[str]) -> str:
    if not argument.startswith("-"):
        return f"unexpected argument {argument!r}: settings are given as flags, see --help"
    flag = argument.partition("=")[0]
    return f"unknown flag {flag}; {meant(flag, [*flags, '--help', '--version'])}"


def from_environment(cls: type[Settings], environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the settings in the environment.

    Raises `SettingsError` for unknown `ARRIERO_` variables.
    """
    known = {setting.variable: setting for setting in settings_of(cls)}
    given = {}
    for variable, text in environ.items():
        if variable in known and text:
            setting = known[variable]
            value = text.split(",") if setting.repeats else text
            given[setting.name] = Given(value, f"from {variable}")
        elif variable not in known and _is_ours(cls, variable):
            raise SettingsError(f"unknown variable {variable}; {_nearest_variable(cls, variable)}")
    return given


def _is_ours(cls: type[Settings], variable: str) -> bool:
    prefix = prefix_of(cls)
    rest = variable.removeprefix(prefix)
    is_secret = variable in cls.secrets
    return variable.startswith(prefix) and not is_secret and not _SERVICE_LINK.fullmatch(rest)


def _nearest_variable(cls: type[Settings], variable: str) -> str:
    prefix = prefix_of(cls)
    names = [setting.name.upper() for setting in settings_of(cls)]
    return meant(variable.removeprefix(prefix), names).replace("mean ", f"mean {prefix}")


def from_file(cls: type[Settings], path: str) -> dict[str, Given]:
    """Return the settings in the TOML file `path`. Raises `SettingsError` with file and key."""
    keys = {setting.flag.removeprefix("--"): setting for setting in settings_of(cls)}
    del keys["config"]
    given: dict[str, Given] = {}
    for key, value in _read_toml(path).items():
        setting = keys.get(key.replace("_", "-"))
        if setting is None:
            raise SettingsError(f"unknown key {key!r} in {path}; {meant(key, keys)}")
        if setting.name in given:
            raise SettingsError(f"{setting.flag} (from {path}): given a second time, as {key!r}")
        given[setting.name] = Given(_text_of(value, setting, path), f"from {path}")
    return given


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"--config: cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config: {path} is not valid TOML: {error}") from error


def _text_of(value: object, setting: Setting, path: str) -> str | list[str]:
    """Return a TOML value in its flag's notation."""
    if setting.repeats:
        values = value if isinstance(value, list) else [value]
        return [_scalar_text(each, setting, path) for each in values]
    return _scalar_text(value, setting, path)


def _scalar_text(value: object, setting: Setting, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{setting.flag} (from {path}): must be text or a number, not {value!r}")


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

    `typed` is the command that the help shows; without it, the help shows the program's name.
    Raises `SettingsError`, or `TextAsked` for `--help` and `--version`.
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
