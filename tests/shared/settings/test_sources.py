"""Each source hands over text under field names and refuses what it does not know."""

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from arriero.shared.settings.declaration import Settings
from arriero.shared.settings.load import (
    Given,
    SettingsError,
    from_environment,
    from_file,
    from_flags,
)


class KettleSettings(Settings):
    program: ClassVar[str] = "kettle"
    summary: ClassVar[str] = "Boils water."

    boil_time: int = Field(default=90, description="how long to boil")
    teas: tuple[str, ...] = Field(default=(), description="teas at hand")


def refused_flags(*argv: str) -> str:
    with pytest.raises(SettingsError) as caught:
        from_flags(KettleSettings, argv)
    return str(caught.value)


def test_flags() -> None:
    given = from_flags(
        KettleSettings, ["--boil-time=-5", "--teas", "a,b", "--teas", "c", "--config", "x"]
    )
    assert given == {
        "boil_time": Given("-5"),
        "teas": Given(["a,b", "c"]),
        "config": Given("x"),
    }
    assert from_flags(KettleSettings, []) == {}


def test_a_negative_number_is_a_value() -> None:
    assert from_flags(KettleSettings, ["--boil-time", "-5"]) == {"boil_time": Given("-5")}


def test_unknown_flags() -> None:
    assert refused_flags("--boil-tme", "5") == "unknown flag --boil-tme; did you mean --boil-time?"
    assert refused_flags("--xyz=5") == "unknown flag --xyz; see --help"
    assert refused_flags("--boil", "5").startswith("unknown flag --boil;")
    assert refused_flags("5") == (
        "unexpected argument '5': settings are given as flags, see --help"
    )


@pytest.mark.parametrize("argv", [("--boil-time",), ("--boil-time", "--teas", "x")])
def test_a_flag_without_its_value(argv: tuple[str, ...]) -> None:
    assert refused_flags(*argv) == "--boil-time: needs a value"


def test_the_environment() -> None:
    environ = {
        "ARRIERO_KETTLE_BOIL_TIME": "5",
        "ARRIERO_KETTLE_TEAS": "a,b",
        "ARRIERO_KETTLE_CONFIG": "x",
        "ARRIERO_OTHER_TEAS": "c",
        "HOME": "/",
    }
    assert from_environment(KettleSettings, environ) == {
        "boil_time": Given("5", "from ARRIERO_KETTLE_BOIL_TIME"),
        "teas": Given(["a", "b"], "from ARRIERO_KETTLE_TEAS"),
        "config": Given("x", "from ARRIERO_KETTLE_CONFIG"),
    }


def test_an_empty_variable_is_not_set() -> None:
    assert from_environment(KettleSettings, {"ARRIERO_KETTLE_BOIL_TIME": ""}) == {}


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("ARRIERO_KETTLE_BOILTIME", "did you mean ARRIERO_KETTLE_BOIL_TIME?"),
        ("ARRIERO_KETTLE_XYZ", "see --help"),
        ("ARRIERO_KETTLE_", "see --help"),
    ],
)
def test_unknown_variables(variable: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(KettleSettings, {variable: "5"})
    assert str(caught.value) == f"unknown variable {variable}; {hint}"


def test_what_kubernetes_adds_for_a_service_of_our_name_is_no_mistake() -> None:
    added = [
        *("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8060_TCP"),
        *("PORT_8060_TCP_ADDR", "PORT_8060_TCP_PORT", "PORT_8060_TCP_PROTO"),
    ]
    assert from_environment(KettleSettings, {f"ARRIERO_KETTLE_{name}": "x" for name in added}) == {}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "kettle.toml"


def refused_file(path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        from_file(KettleSettings, str(path))
    return str(caught.value)


@pytest.mark.parametrize("key", ["boil-time", "boil_time"])
def test_a_file(config: Path, key: str) -> None:
    config.write_text(f'{key} = 5\nteas = ["a", "b"]\n')
    assert from_file(KettleSettings, str(config)) == {
        "boil_time": Given("5", f"from {config}"),
        "teas": Given(["a", "b"], f"from {config}"),
    }


def test_a_list_of_one_may_be_written_plainly(config: Path) -> None:
    config.write_text('teas = "a,b"\n')
    assert from_file(KettleSettings, str(config))["teas"].text == ["a,b"]


@pytest.mark.parametrize(("value", "text"), [("1.5", "1.5"), ("true", "true"), ('"x"', "x")])
def test_values_become_text(config: Path, value: str, text: str) -> None:
    config.write_text(f"boil-time = {value}\n")
    assert from_file(KettleSettings, str(config))["boil_time"].text == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("boil-tim = 5", "unknown key 'boil-tim' in {path}; did you mean boil-time?"),
        ('config = "x"', "unknown key 'config' in {path}; see --help"),
        (
            "boil-time = 5\nboil_time = 6",
            "--boil-time (from {path}): given a second time, as 'boil_time'",
        ),
        ("boil-time = [5]", "--boil-time (from {path}): must be text or a number, not [5]"),
        ("[teas]\na = 1", "--teas (from {path}): must be text or a number, not {{'a': 1}}"),
    ],
)
def test_wrong_files(config: Path, content: str, message: str) -> None:
    config.write_text(content)
    assert refused_file(config) == message.format(path=config)


def test_a_file_that_is_no_toml(config: Path) -> None:
    config.write_text("boil-time 5")
    assert refused_file(config).startswith(f"--config: {config} is not valid TOML: ")
    config.write_bytes(b"\xff\xfe")
    assert refused_file(config).startswith(f"--config: {config} is not valid TOML: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert refused_file(missing) == f"--config: cannot read {missing}: No such file or directory"
    assert refused_file(tmp_path) == f"--config: cannot read {tmp_path}: Is a directory"
