"""Settings are declared once, as fields of a model; names and help texts are derived from them.

The field `max_buffered_requests` of a class with the program `balancer` is the flag
`--max-buffered-requests`, the variable `ARRIERO_BALANCER_MAX_BUFFERED_REQUESTS` and the TOML key
`max-buffered-requests` (or `max_buffered_requests`).
"""

from dataclasses import dataclass
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal, get_origin

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer
from pydantic.fields import FieldInfo

from ..quantities import Address, Duration, format_duration, parse_address
from ..strict import FROZEN

LogFormat = Literal["auto", "text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Shown:
    """The metavar of a setting in help texts, and the text of a default that is derived."""

    metavar: str
    default: str | None = None


ListenAddress = Annotated[
    Address,
    BeforeValidator(parse_address),
    PlainSerializer(str, when_used="json"),
    Shown("HOST:PORT"),
]


class Settings(BaseModel):
    """The settings of a program. Subclasses add fields, each with a description."""

    model_config = FROZEN

    program: ClassVar[str]
    summary: ClassVar[str]
    secrets: ClassVar[tuple[str, ...]] = ()
    """Variables that are not settings: they hold secrets, which flags and logs must not have."""


class DaemonSettings(Settings):
    """The settings that every daemon has."""

    drain_timeout: Annotated[Duration, Shown("DURATION")] = Field(
        default=30.0, description="how long running requests may go on after SIGTERM"
    )
    log_format: LogFormat = Field(
        default="auto",
        description="format of the log on stderr; auto is text on a terminal, else json",
    )
    log_level: LogLevel = Field(default="info", description="lowest level that is logged")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its names, and its texts in help."""

    name: str
    flag: str
    variable: str
    metavar: str
    default: str
    description: str
    repeats: bool
    is_switch: bool = False


def settings_of(cls: type[Settings]) -> list[Setting]:
    """Return the settings of `cls`: its own first, then the inherited ones and `--config`."""
    declared = dict.fromkeys(name for base in cls.__mro__ for name in get_annotations(base))
    fields = [(name, cls.model_fields[name]) for name in declared if name in cls.model_fields]
    return [*(_setting(cls, name, field) for name, field in fields), _config_setting(cls)]


def _setting(cls: type[Settings], name: str, field: FieldInfo) -> Setting:
    shown = next((mark for mark in field.metadata if isinstance(mark, Shown)), None)
    return Setting(
        name=name,
        flag=flag_of(name),
        variable=prefix_of(cls) + name.upper(),
        metavar=shown.metavar if shown else _metavar(field.annotation),
        default=(shown and shown.default) or _default_text(field),
        description=field.description or "",
        repeats=_repeats(field),
        is_switch=field.annotation is bool,
    )


def _config_setting(cls: type[Settings]) -> Setting:
    return Setting(
        name="config",
        flag="--config",
        variable=prefix_of(cls) + "CONFIG",
        metavar="FILE",
        default="none",
        description="TOML file to read settings from",
        repeats=False,
    )


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(annotation.__args__)
    if annotation is bool:
        return "[true|false]"
    return "N" if annotation is int else "TEXT"


def _default_text(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return format_duration(default)
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def _repeats(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def flag_of(name: str) -> str:
    """Return the flag of the field `name`."""
    return "--" + name.replace("_", "-")


def prefix_of(cls: type[Settings]) -> str:
    """Return the prefix of the variables of `cls`."""
    return f"ARRIERO_{cls.program.upper()}_"
