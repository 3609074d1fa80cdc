"""All names and texts of a setting follow from its field."""

from typing import Annotated, ClassVar

from pydantic import Field

from arriero.shared.quantities import Duration
from arriero.shared.settings.declaration import (
    DaemonSettings,
    Setting,
    Shown,
    flag_of,
    prefix_of,
    settings_of,
)


class KettleSettings(DaemonSettings):
    program: ClassVar[str] = "kettle"
    summary: ClassVar[str] = "Boils water."

    boil_time: Annotated[Duration, Shown("DURATION")] = Field(
        default=90.0, description="how long to boil"
    )
    cups: Annotated[int, Field(ge=1)] = Field(default=2, description="cups to fill")
    teas: tuple[str, ...] = Field(default=("green", "black"), description="teas at hand")
    owner: Annotated[str | None, Shown("TEXT", "whoever asks")] = Field(
        default=None, description="whose it is"
    )


def test_every_name_follows_from_the_field() -> None:
    assert settings_of(KettleSettings)[0] == Setting(
        name="boil_time",
        flag="--boil-time",
        variable="ARRIERO_KETTLE_BOIL_TIME",
        metavar="DURATION",
        default="90s",
        description="how long to boil",
        repeats=False,
    )


def test_own_settings_come_first_and_the_config_file_last() -> None:
    assert [setting.name for setting in settings_of(KettleSettings)] == [
        *("boil_time", "cups", "teas", "owner"),
        *("drain_timeout", "log_format", "log_level", "config"),
    ]


def test_metavars_and_defaults_are_derived_unless_said() -> None:
    shown = {each.name: (each.metavar, each.default) for each in settings_of(KettleSettings)}
    assert shown["cups"] == ("N", "2")
    assert shown["teas"] == ("TEXT", "green, black")
    assert shown["owner"] == ("TEXT", "whoever asks")
    assert shown["log_format"] == ("auto|text|json", "auto")
    assert shown["config"] == ("FILE", "none")


def test_only_a_list_repeats() -> None:
    assert [each.name for each in settings_of(KettleSettings) if each.repeats] == ["teas"]


def test_flags_and_prefixes() -> None:
    assert flag_of("max_buffered_requests") == "--max-buffered-requests"
    assert prefix_of(KettleSettings) == "ARRIERO_KETTLE_"
