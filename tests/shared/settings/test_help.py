"""Help explains every setting and fits a terminal."""

import pytest

from arriero.agent.settings import AgentSettings
from arriero.balancer.settings import BalancerSettings
from arriero.shared.settings.declaration import Settings, settings_of
from arriero.shared.settings.help import help_text

programs = pytest.mark.parametrize("cls", [AgentSettings, BalancerSettings])


@programs
def test_every_setting_is_explained_with_its_default_and_variable(cls: type[Settings]) -> None:
    words = help_text(cls, 100).split()
    for setting in settings_of(cls):
        assert setting.flag in words
        assert f"[{setting.variable}]" in words
        assert setting.description
        assert " ".join(["[default:", *setting.default.split()]) in " ".join(words)


@programs
@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(cls: type[Settings], width: int) -> None:
    assert max(map(len, help_text(cls, width).splitlines())) <= width


def test_how_an_entry_looks() -> None:
    assert (
        "  --balancer URL (repeatable)\n"
        "      Management address of a balancer to dial, and where a name has several\n"
        "      addresses, of one at each; in the environment, several are separated by\n"
        "      commas.\n"
        "      [default: ws://127.0.0.1:8060] [ARRIERO_AGENT_BALANCER]\n"
    ) in help_text(AgentSettings, 80)
