"""The sources of settings: flags, environment, file. Each gives texts by field name."""

import argparse
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..nearest import meant
from .declaration import Setting, Settings, prefix_of, settings_of

_SERVICE_LINK = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
"""Variables that Kubernetes sets in containers for a Service with the program's name."""


class SettingsError(Exception):
    """The settings are wrong. The message is one line: the wrong setting, and what is valid."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as text; `origin` names its source unless the source is its flag."""

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
