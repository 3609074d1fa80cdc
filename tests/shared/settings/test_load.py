"""Flags over environment over file, and one line for whatever is wrong."""

import sys
from pathlib import Path
from typing import Annotated, ClassVar, Self

import pytest
from pydantic import AfterValidator, Field, model_validator

from arriero.agent.settings import AgentSettings
from arriero.balancer.settings import BalancerSettings
from arriero.shared.quantities import Address
from arriero.shared.settings.declaration import DaemonSettings, ListenAddress, Settings, settings_of
from arriero.shared.settings.load import SettingsError, TextAsked, help_text, load, load_or_exit


def no_sugar(tea: str) -> str:
    if "sugar" in tea:
        raise ValueError("must be without sugar")
    return tea


class KettleSettings(DaemonSettings):
    program: ClassVar[str] = "kettle"
    summary: ClassVar[str] = "Boils water."

    stove_addr: ListenAddress = Field(default=Address("127.0.0.1", 1), description="the stove")
    cups: Annotated[int, Field(ge=1)] = Field(default=2, description="cups to fill")
    pots: int = Field(default=1, description="pots at hand")
    teas: tuple[Annotated[str, AfterValidator(no_sugar)], ...] = Field(
        default=("green",), description="teas at hand"
    )

    @model_validator(mode="after")
    def _enough_pots(self) -> Self:
        if self.cups > 10 * self.pots:
            raise ValueError("--pots: must be at least a tenth of --cups")
        return self


def refused(*argv: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(KettleSettings, argv, environ or {})
    return str(caught.value)


def test_defaults() -> None:
    settings = load(KettleSettings, [], {})
    assert settings == KettleSettings()
    assert settings.drain_timeout == 30.0


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "kettle.toml"
    config.write_text('cups = 3\npots = 4\nteas = ["mint"]\ndrain-timeout = "1m"\n')
    environ = {"ARRIERO_KETTLE_POTS": "5", "ARRIERO_KETTLE_TEAS": "black,white"}
    settings = load(KettleSettings, ["--teas", "sage", "--config", str(config)], environ)
    assert settings.cups == 3
    assert settings.pots == 5
    assert settings.teas == ("sage",)
    assert settings.drain_timeout == 60.0


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "kettle.toml"
    config.write_text("cups = 3\n")
    environ = {"ARRIERO_KETTLE_CONFIG": str(config)}
    assert load(KettleSettings, [], environ).cups == 3
    other = tmp_path / "other.toml"
    other.write_text("cups = 4\n")
    assert load(KettleSettings, ["--config", str(other)], environ).cups == 4


def test_a_wrong_value_that_is_overruled_does_no_harm() -> None:
    assert load(KettleSettings, ["--cups", "3"], {"ARRIERO_KETTLE_CUPS": "x"}).cups == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--cups", "x"), "--cups: must be a whole number, not 'x'"),
        (("--cups", "1.5"), "--cups: must be a whole number, not '1.5'"),
        (("--cups", "0"), "--cups: must be at least 1, not '0'"),
        (("--teas", "a", "--teas", "sugar"), "--teas: must be without sugar, not 'sugar'"),
        (
            ("--log-level", "loud"),
            "--log-level: must be 'debug', 'info', 'warning' or 'error', not 'loud'",
        ),
        (
            ("--drain-timeout", "soon"),
            "--drain-timeout: must be a duration of at most a year, such as 10, 500ms, 2m, 12h or "
            "7d, not 'soon'",
        ),
        (
            ("--stove-addr", "kitchen"),
            "--stove-addr: must be HOST:PORT such as 127.0.0.1:8060 (port 0 takes any free one), "
            "not 'kitchen'",
        ),
        (("--cups", "11"), "--pots: must be at least a tenth of --cups"),
    ],
)
def test_a_wrong_flag_is_named(argv: tuple[str, ...], message: str) -> None:
    assert refused(*argv) == message


def test_a_wrong_value_is_said_to_come_from_where_it_came(tmp_path: Path) -> None:
    message = "must be a whole number, not 'x'"
    environ = {"ARRIERO_KETTLE_CUPS": "x"}
    assert refused(environ=environ) == f"--cups (from ARRIERO_KETTLE_CUPS): {message}"
    config = tmp_path / "kettle.toml"
    config.write_text('cups = "x"\n')
    assert refused("--config", str(config)) == f"--cups (from {config}): {message}"


def test_true_is_no_number(tmp_path: Path) -> None:
    config = tmp_path / "kettle.toml"
    config.write_text("cups = true\n")
    assert "must be a whole number" in refused("--config", str(config))


def test_a_password_is_not_repeated() -> None:
    assert refused("--cups", "postgresql://me:word@db") == (
        "--cups: must be a whole number, not 'postgresql://me:***@db'"
    )


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--nonsense", "--help"]])
def test_help(argv: list[str]) -> None:
    with pytest.raises(TextAsked, match=r"^usage: kettle"):
        load(KettleSettings, argv, {})


def test_version() -> None:
    with pytest.raises(TextAsked, match=r"^kettle \(arriero\) \d"):
        load(KettleSettings, ["--version"], {})


def test_a_mistake_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        load_or_exit(KettleSettings, ["--cups", "x"])
    assert exit.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "kettle: --cups: must be a whole number, not 'x'\n")


def test_help_goes_to_stdout_and_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        load_or_exit(KettleSettings, ["--help"])
    assert exit.value.code == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: kettle")
    assert err == ""


def test_help_and_mistakes_name_the_command_that_was_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, typed in (("/bin/arriero", "arriero kettle"), ("/bin/kettle", "kettle")):
        monkeypatch.setattr(sys, "argv", [path])
        for argument in ("--help", "--nonsense"):
            with pytest.raises(SystemExit):
                load_or_exit(KettleSettings, [argument])
        out, err = capsys.readouterr()
        assert out.startswith(f"usage: {typed} [")
        assert err.startswith(f"{typed}: unknown flag")


def test_right_settings_are_returned() -> None:
    assert load_or_exit(KettleSettings, ["--cups", "3"]).cups == 3


programs = pytest.mark.parametrize("cls", [AgentSettings, BalancerSettings])


@programs
def test_every_setting_is_explained_with_its_default_and_variable(cls: type[Settings]) -> None:
    words = help_text(cls, 100, "agent").split()
    for setting in settings_of(cls):
        assert setting.flag in words
        assert f"[{setting.variable}]" in words
        assert setting.description
        assert " ".join(["[default:", *setting.default.split()]) in " ".join(words)


@programs
@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(cls: type[Settings], width: int) -> None:
    assert max(map(len, help_text(cls, width, "arriero agent").splitlines())) <= width


def test_how_an_entry_looks() -> None:
    assert (
        "  --balancer URL (repeatable)\n"
        "      Management address of a balancer; if its name has several addresses, each\n"
        "      is dialled; in the environment, separate several by commas.\n"
        "      [default: ws://127.0.0.1:8060] [ARRIERO_AGENT_BALANCER]\n"
    ) in help_text(AgentSettings, 80, "agent")
