import pytest

from arriero.cli.commands.completion import main, words


def test_every_command_is_there_with_its_flags() -> None:
    found = words()
    assert {"agent", "balancer", "batch", "chat", "completion", "status"} <= set(found)
    assert {"--json", "--url", "drain", "resume", "reload"} <= set(found["agents"])
    assert {"bash", "zsh", "fish"} <= set(found["completion"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    assert "status" in capsys.readouterr().out
