import shutil
import subprocess

import pytest

from arriero.cli.commands.completion import bash, fish, main, words, zsh


def test_every_command_is_there_with_its_flags() -> None:
    found = words()
    assert {"agent", "balancer", "batch", "chat", "completion", "status"} <= set(found)
    assert {"--json", "--url", "drain", "resume", "reload"} <= set(found["agents"])
    assert {"bash", "zsh", "fish"} <= set(found["completion"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    assert "status" in capsys.readouterr().out


WORDS = {"agents": ["--json", "drain"], "status": ["--once"]}


def completed(line: str, cursor: int) -> list[str]:
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = f"{bash(WORDS)}\nCOMP_WORDS=({words}); COMP_CWORD={cursor}; _arriero\n"
    command = ["bash", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"']
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "cursor", "expected"),
    [
        ("arriero ", 1, ["agents", "status"]),
        ("arriero st", 1, ["status"]),
        ("arriero agents ", 2, ["--json", "drain"]),
        ("arriero status --o", 2, ["--once"]),
        ("arriero other ", 2, []),
    ],
)
def test_bash_completes(line: str, cursor: int, expected: list[str]) -> None:
    assert completed(line, cursor) == expected


def test_the_others_have_the_same_words() -> None:
    assert bash(WORDS) in zsh(WORDS)
    script = fish(WORDS)
    assert "-a 'agents status'" in script
    assert "'__fish_seen_subcommand_from agents' -a drain" in script
    assert "'__fish_seen_subcommand_from status' -l once" in script
