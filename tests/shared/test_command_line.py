"""The `arriero` program finds the installed commands."""

from contextlib import suppress

import pytest

from arriero.shared.command_line import main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: arriero COMMAND [--FLAG VALUE ...]"
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert {"agent", "balancer"} <= set(names)
    assert names == sorted(names)
    assert all(len(line.split()) > 2 for line in lines if line.startswith("  "))


@pytest.mark.parametrize("arguments", [["help"], ["help", "agents"]])
def test_help_is_a_command_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"usage: arriero {(*arguments, 'COMMAND')[1]} ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("arriero ")


@pytest.mark.parametrize(
    ("word", "hint"), [("balancr", "did you mean balancer?"), ("zzz", "see arriero --help")]
)
def test_an_unknown_command(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err == f"arriero: unknown command '{word}'; {hint}\n"


def test_the_rest_goes_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["balancer", "--max-buffered-requests", "x"])
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("balancer: --max-buffered-requests: ")
