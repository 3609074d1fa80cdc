import pytest

from arriero.balancer.fleet.change_log import Change, ChangeLog
from arriero.shared.inference import AgentId

A, B, C = AgentId("a"), AgentId("b"), AgentId("c")
NOTHING: Change[AgentId] = Change((), ())


@pytest.fixture
def log() -> ChangeLog:
    return ChangeLog(max_gone=2)


def test_what_changed_after_a_revision_in_order(log: ChangeLog) -> None:
    log.agent_changed(C)
    before = log.revision
    assert log.since(before) == NOTHING
    log.agent_changed(A)
    log.agent_changed(B)
    log.agent_changed(A)
    assert log.since(before) == Change((B, A), ())
    assert log.since(0) == Change((C, B, A), ())


def test_what_changes_often_is_listed_once(log: ChangeLog) -> None:
    for _ in range(9):
        log.agent_changed(A)
    assert log.since(0) == Change((A,), ())
    log.check_integrity()


def test_other_changes_are_told_by_the_revision_alone(log: ChangeLog) -> None:
    assert log.advance() == 1
    assert log.since(0) == NOTHING


def test_tokens_are_told_apart(log: ChangeLog) -> None:
    for id in (A, B, A):
        log.agent_generated(id)
    assert log.since(0) == NOTHING
    assert list(log.generated_since(0)) == [A, B]
    assert list(log.generated_since(2)) == [A]
    log.agent_gone(A)
    assert list(log.generated_since(0)) == [B]


def test_what_is_gone_and_what_comes_back(log: ChangeLog) -> None:
    log.agent_changed(A)
    before = log.revision
    log.agent_gone(A)
    assert log.since(before) == Change((), (A,))
    log.agent_changed(A)
    assert log.since(before) == Change((A,), ())


def test_only_so_many_that_are_gone_are_remembered(log: ChangeLog) -> None:
    revisions = []
    for id in (A, B, C):
        log.agent_changed(id)
        revisions.append(log.revision)
        log.agent_gone(id)
        log.check_integrity()
    assert log.since(revisions[0]) is None
    assert log.since(revisions[1]) == Change((), (B, C))


def test_a_revision_that_is_yet_to_come_is_none_of_ours(log: ChangeLog) -> None:
    assert log.since(log.revision + 1) is None
