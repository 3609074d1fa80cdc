"""Settings declared once, as a model's fields; flags, environment, file and help follow from it.

A field `max_buffered_requests` of a class whose program is `balancer` is the flag
`--max-buffered-requests`, the variable `ARRIERO_BALANCER_MAX_BUFFERED_REQUESTS` and the TOML key
`max-buffered-requests` (or `max_buffered_requests`). Flags win over the environment, the
environment over the file. Every source hands over text, so a value means the same everywhere; an
empty variable counts as not set.
"""

import argparse
import difflib
import re
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from inspect import get_annotations
from os import environ as process_environment
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from .log import Format, Level, redact
from .quantities import Address, Duration, format_duration, parse_address
from .validation import requirement

_SERVICE_LINK = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
"""What Kubernetes adds to a container's environment for a Service named like the program."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How help shows a setting: what stands for its value, and for a default that is derived."""

    metavar: str
    default: str | None = None


ListenAddress = Annotated[Address, BeforeValidator(parse_address), Shown("HOST:PORT")]


class Settings(BaseModel):
    """What a program can be told. Subclasses add fields, each with a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: ClassVar[str]
    summary: ClassVar[str]


class DaemonSettings(Settings):
    """What every daemon can be told."""

    drain_timeout: Annotated[Duration, Shown("DURATION")] = Field(
        default=30.0, description="how long running requests may go on after SIGTERM"
    )
    log_format: Format = Field(
        default="auto", description="how to log to stderr; auto is text on a terminal, else json"
    )
    log_level: Level = Field(default="info", description="least level that is logged")


class SettingsError(Exception):
    """The settings are wrong; the message is one line that says which and what would be right."""


class TextAsked(Exception):  # noqa: N818 - not an error: --help or --version was given
    """The text to print instead of running."""


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under its several names."""

    name: str
    flag: str
    variable: str
    metavar: str
    default: str
    description: str
    repeats: bool


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as text, and where it came from unless from its flag."""

    text: str | list[str]
    origin: str | None = None


def load_or_exit(cls: type[S], argv: Sequence[str] | None = None) -> S:
    """The settings of this process. Prints one line and exits with 2 when they are wrong."""
    try:
        return load(cls, sys.argv[1:] if argv is None else argv, process_environment)
    except TextAsked as asked:
        sys.stdout.write(str(asked))
        raise SystemExit(0) from None
    except SettingsError as error:
        sys.stderr.write(f"{cls.program}: {error}\n")
        raise SystemExit(2) from None


def load(cls: type[S], argv: Sequence[str], environ: Mapping[str, str]) -> S:
    """The settings of `cls` from flags, environment and file.

    Raises `SettingsError`, or `TextAsked` for `--help` and `--version`.
    """
    flags = _from_flags(cls, argv)
    variables = _from_environment(cls, environ)
    config = flags.pop("config", variables.pop("config", None))
    given = _from_file(cls, str(config.text)) if config else {}
    given |= variables | flags
    try:
        return cls.model_validate({name: value.text for name, value in given.items()})
    except ValidationError as error:
        raise SettingsError(_first_finding(error, given)) from error


def settings_of(cls: type[Settings]) -> list[Setting]:
    """The settings of `cls`, its own first, then the inherited ones and `--config`."""
    names = dict.fromkeys(name for base in cls.__mro__ for name in get_annotations(base))
    own = [
        _setting(cls, name, cls.model_fields[name]) for name in names if name in cls.model_fields
    ]
    return [*own, _config_setting(cls)]


def help_text(cls: type[Settings], width: int) -> str:
    """What `--help` prints, in lines of at most `width` characters where words allow."""
    lines = [f"usage: {cls.program} [--FLAG VALUE ...]", "", *textwrap.wrap(cls.summary, width), ""]
    for setting in settings_of(cls):
        lines += _help_entry(setting, width)
    lines += ["  --version", *_indented("Print the version and exit.", width)]
    lines += ["  --help, -h", *_indented("Print this and exit.", width), ""]
    lines += textwrap.wrap(
        "Flags win over the environment, the environment over the file. The file's keys are the "
        "flags without dashes in front. A DURATION is a number of seconds (10, 1.5) or has a "
        "unit (500ms, 30s, 2m, 1h).",
        width,
    )
    return "\n".join(lines) + "\n"


def _help_entry(setting: Setting, width: int) -> list[str]:
    head = f"  {setting.flag} {setting.metavar}" + (" (repeatable)" if setting.repeats else "")
    sentence = f"{setting.description[0].upper()}{setting.description[1:]}."
    names = f"[default: {setting.default}] [{setting.variable}]"
    return [head, *_indented(sentence, width), *_indented(names, width)]


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


# ---- the declaration


def _setting(cls: type[Settings], name: str, field: FieldInfo) -> Setting:
    shown = next((mark for mark in field.metadata if isinstance(mark, Shown)), None)
    flag = _flag(name)
    return Setting(
        name=name,
        flag=flag,
        variable=_prefix(cls) + name.upper(),
        metavar=shown.metavar if shown else _metavar(field.annotation),
        default=(shown and shown.default) or _default_text(field),
        description=field.description or "",
        repeats=_repeats(field),
    )


def _config_setting(cls: type[Settings]) -> Setting:
    return Setting(
        name="config",
        flag="--config",
        variable=_prefix(cls) + "CONFIG",
        metavar="FILE",
        default="none",
        description="TOML file to read settings from",
        repeats=False,
    )


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(annotation.__args__)
    return "N" if annotation is int else "TEXT"


def _default_text(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None:
        return "none"
    if isinstance(default, float):
        return format_duration(default)
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def _repeats(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _prefix(cls: type[Settings]) -> str:
    return f"ARRIERO_{cls.program.upper()}_"


# ---- the sources


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        raise SettingsError(message.replace("expected one argument", "needs a value"))


def _from_flags(cls: type[Settings], argv: Sequence[str]) -> dict[str, _Given]:
    parser = _Parser(prog=cls.program, add_help=False, allow_abbrev=False)
    settings = settings_of(cls)
    for setting in settings:
        action = "append" if setting.repeats else "store"
        parser.add_argument(setting.flag, dest=setting.name, action=action)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    found, unknown = parser.parse_known_args(argv)
    if found.help:
        width = max(60, min(100, shutil.get_terminal_size().columns))
        raise TextAsked(help_text(cls, width))
    if found.version:
        raise TextAsked(f"{cls.program} (arriero) {version('arriero')}\n")
    if unknown:
        raise SettingsError(_unknown_flag(unknown[0], [setting.flag for setting in settings]))
    names = [setting.name for setting in settings if getattr(found, setting.name) is not None]
    return {name: _Given(getattr(found, name)) for name in names}


def _unknown_flag(argument: str, flags: list[str]) -> str:
    if not argument.startswith("-"):
        return f"unexpected argument {argument!r}: settings are given as flags, see --help"
    flag = argument.partition("=")[0]
    return f"unknown flag {flag}" + _nearest(flag, [*flags, "--help", "--version"])


def _from_environment(cls: type[Settings], environ: Mapping[str, str]) -> dict[str, _Given]:
    known = {setting.variable: setting for setting in settings_of(cls)}
    given = {}
    for variable, text in environ.items():
        if variable in known and text:
            setting = known[variable]
            value = text.split(",") if setting.repeats else text
            given[setting.name] = _Given(value, f"from {variable}")
        elif variable not in known and _is_ours(cls, variable):
            raise SettingsError(f"unknown variable {variable}" + _nearest_variable(cls, variable))
    return given


def _is_ours(cls: type[Settings], variable: str) -> bool:
    prefix = _prefix(cls)
    rest = variable.removeprefix(prefix)
    return variable.startswith(prefix) and not _SERVICE_LINK.fullmatch(rest)


def _nearest_variable(cls: type[Settings], variable: str) -> str:
    prefix = _prefix(cls)
    names = [setting.name.upper() for setting in settings_of(cls)]
    return _nearest(variable.removeprefix(prefix), names).replace("mean ", f"mean {prefix}")


def _from_file(cls: type[Settings], path: str) -> dict[str, _Given]:
    known = {setting.name: setting for setting in settings_of(cls) if setting.name != "config"}
    given = {}
    for key, value in _read_toml(path).items():
        name = key.replace("-", "_")
        if name not in known:
            keys = [setting.flag.removeprefix("--") for setting in known.values()]
            raise SettingsError(f"unknown key `{key}` in {path}" + _nearest(key, keys))
        if name in given:
            raise SettingsError(f"{known[name].flag}: given twice in {path}, as `{key}` too")
        given[name] = _Given(_text_of(value, known[name], path), f"from {path}")
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
    """A TOML value as its flag would be written. Raises `SettingsError` for what no flag can be."""
    if setting.repeats:
        values = value if isinstance(value, list) else [value]
        return [_scalar_text(each, setting, path) for each in values]
    return _scalar_text(value, setting, path)


def _scalar_text(value: object, setting: Setting, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    kind = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "that"
    raise SettingsError(f"{setting.flag} (from {path}): must be a single value, not {kind}")


# ---- what to say


def _nearest(word: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else "; see --help"


def _first_finding(error: ValidationError, given: Mapping[str, _Given]) -> str:
    finding = error.errors(include_url=False)[0]
    if not finding["loc"]:
        return requirement(finding)
    name = str(finding["loc"][0])
    origin = given[name].origin if name in given else None
    source = f" ({origin})" if origin else ""
    return redact(f"{_flag(name)}{source}: {requirement(finding)}, not {finding['input']!r}")
