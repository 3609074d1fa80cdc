"""How long agents that sent bad messages stay away, and what operators see of it."""

from arriero.balancer.access.identity import Identity
from arriero.balancer.fleet.bad_messages import (
    CODE,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_REMEMBERED,
    MEMORY,
    BadMessages,
    speaker_of,
)
from arriero.shared.inference import AgentId
from arriero.shared.messages import MAX_WORDS

A = speaker_of(None, AgentId("a"))


def test_pauses_grow_and_are_bounded() -> None:
    bad = BadMessages()
    pauses = []
    for number in range(40):
        offence = bad.came_from(A, "why", float(number))
        pauses.append(offence.until - offence.at)
    assert pauses[:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert bad.total == 40


def test_an_agent_that_behaved_for_long_begins_anew() -> None:
    bad = BadMessages()
    bad.came_from(A, "why", 0.0)
    bad.came_from(A, "why", 1.0)
    assert bad.of(A, 1.0 + MEMORY) is not None
    assert bad.of(A, 1.1 + MEMORY) is None
    assert len(bad) == 0
    assert bad.came_from(A, "why", 2 * MEMORY).num == 1


def test_operators_see_it_until_it_is_long_ago() -> None:
    offence = BadMessages().came_from(A, "x" * 9000, 10.0)
    issue = offence.issue(13.0)
    assert issue is not None
    assert (issue.code, len(issue.message)) == (CODE, MAX_WORDS)
    assert issue.message.startswith(
        "the agent's connection was closed 3 s ago, because it sent a bad message: xxx"
    )
    assert offence.issue(11.0 + MEMORY) is None


def test_another_keys_agent_is_another() -> None:
    bad = BadMessages()
    bad.came_from(speaker_of(Identity(name="k", role="agent"), AgentId("a")), "why", 0.0)
    assert bad.of(A, 0.0) is None


def test_those_that_offended_last_are_remembered() -> None:
    bad = BadMessages()
    bad.came_from(A, "why", 0.0)
    for number in range(MAX_REMEMBERED):
        bad.came_from(speaker_of(None, AgentId(str(number))), "why", 1.0)
    assert len(bad) == MAX_REMEMBERED
    assert bad.of(A, 1.0) is None
