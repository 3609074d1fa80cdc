import pytest

from arriero.cli.arguments import UsageError
from arriero.cli.names import agent_named

AGENTS = [{"id": "1", "name": "box"}, {"id": "2", "name": "twin"}, {"id": "3", "name": "twin"}]


def test_by_name_or_id() -> None:
    assert agent_named(AGENTS, "box") == agent_named(AGENTS, "1") == AGENTS[0]
    assert agent_named(AGENTS, "3") == AGENTS[2]


@pytest.mark.parametrize(
    ("word", "said"), [("twin", "give the id of one: 2, 3"), ("x", "connected: box, twin")]
)
def test_none_and_several(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        agent_named(AGENTS, word)
