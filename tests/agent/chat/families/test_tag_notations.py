import pytest

from arriero.agent.chat.calls.tagged_calls import Tags
from arriero.agent.chat.families import tag_notations

ALL = {name: each for name, each in vars(tag_notations).items() if isinstance(each, Tags)}


@pytest.mark.parametrize("name", ALL)
def test_an_argument_and_its_end_can_be_told_apart(name: str) -> None:
    tags = ALL[name]
    assert tags.key_start
    assert len({tags.key_start, tags.value_end, tags.end}) == 3
    assert tags.key_end or tags.typed_key_ends
