"""How much work a grammar may be."""

import pytest

from arriero.agent.chat.grammar.work import MAX_SCHEMAS, TooMuchWorkError, Work
from arriero.agent.engine.grammar.grammars import MAX_TEXT


def test_all_of_it_may_be_done_and_no_more() -> None:
    work = Work(10)
    work.spend(4)
    work.spend(6)
    with pytest.raises(TooMuchWorkError):
        work.spend(1)


def test_schemas_are_as_long_as_their_grammar_may_be() -> None:
    assert MAX_SCHEMAS == MAX_TEXT
