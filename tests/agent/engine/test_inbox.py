from queue import Empty

import pytest

from arriero.agent.engine.inbox import Inbox


def test_commands_come_out_in_the_order_in_which_they_went_in() -> None:
    inbox: Inbox[int] = Inbox(2)
    for command in (1, 2, 3):
        inbox.put(command)
    assert len(inbox) == 3
    assert [inbox.get() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Empty):
        inbox.get(timeout=0.001)


def test_whoever_was_refused_is_told_when_it_is_empty_and_once() -> None:
    told: list[int] = []
    inbox: Inbox[int] = Inbox(2, lambda: told.append(len(inbox)))
    inbox.put(1)
    assert inbox.has_room()
    inbox.put(2)
    assert not inbox.has_room()
    inbox.get()
    assert told == []
    inbox.get()
    assert told == [0]
    inbox.put(3)
    inbox.get()
    assert told == [0]


def test_nobody_is_told_who_did_not_ask() -> None:
    inbox: Inbox[int] = Inbox(1, lambda: pytest.fail("nobody was refused"))
    inbox.put(1)
    inbox.get()
