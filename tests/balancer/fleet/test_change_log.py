import pytest

from arriero.balancer.fleet.change_log import Change, ChangeLog
from arriero.shared.inference import AgentId, RequestId

A, B = AgentId("a"), AgentId("b")
Q, R = RequestId("q"), RequestId("r")
NOTHING: Change[str] = Change((), ())


@pytest.fixture
def log() -> ChangeLog:
    return ChangeLog(max_gone=2)


def test_what_changed_after_a_revision_in_order(log: ChangeLog) -> None:
    log.agent_changed(A)
    log.request_changed(Q)
    before = log.revision
    assert log.since(before) == (NOTHING, NOTHING)
    log.request_changed(R)
    log.request_changed(Q)
    log.agent_changed(B)
    assert log.since(before) == (Change((B,), ()), Change((R, Q), ()))
    assert log.since(0) == (Change((A, B), ()), Change((R, Q), ()))


def test_what_changes_often_is_listed_once(log: ChangeLog) -> None:
    for _ in range(9):
        log.request_changed(Q)
    assert log.since(0) == (NOTHING, Change((Q,), ()))
    log.check_integrity()


def test_several_requests_change_at_once(log: ChangeLog) -> None:
    log.requests_changed([Q, R])
    assert log.revision == 1
    assert log.since(0) == (NOTHING, Change((Q, R), ()))
    assert log.since(1) == (NOTHING, NOTHING)
    log.check_integrity()


def test_what_is_gone_and_what_comes_back(log: ChangeLog) -> None:
    log.agent_changed(A)
    before = log.revision
    log.agent_gone(A)
    assert log.since(before) == (Change((), (A,)), NOTHING)
    log.agent_changed(A)
    assert log.since(before) == (Change((A,), ()), NOTHING)


def test_only_so_many_that_are_gone_are_remembered(log: ChangeLog) -> None:
    revisions = []
    for id in (Q, R, RequestId("s")):
        log.request_changed(id)
        revisions.append(log.revision)
        log.request_gone(id)
        log.check_integrity()
    assert log.since(revisions[0]) is None
    assert log.since(revisions[1]) == (NOTHING, Change((), (R, RequestId("s"))))


def test_a_revision_that_is_yet_to_come_is_none_of_ours(log: ChangeLog) -> None:
    assert log.since(log.revision + 1) is None
