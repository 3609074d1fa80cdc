"""A judge that finds nothing is worth nothing: each thing that must not be is found."""

from typing import Any

import pytest

from bench.chaos.faults import BY_NAME, HEARTBEAT_TIMEOUT
from bench.chaos.judge import AFTERMATH, Answer, Episode, Judge, text_of
from bench.chaos.record import Record

RIGHT = {"": [{"event": "token", "text": "All is well."}, {"event": "done"}]}
HALF = {"": [{"event": "token", "text": "All is"}]}
WRONG = {"": [{"event": "token", "text": "All is lost."}, {"event": "done"}]}
JUDGE = Judge({"text": Answer(RIGHT, 1), "batch": Answer(RIGHT, 2)}, quiet=1.0)


def record(**fields: Any) -> Record:
    """A request that ended as it should, from second 10 to 11."""
    right: dict[str, Any] = {
        "kind": "text",
        "sent_at": 10.0,
        "stamps": [10.5, 11.0],
        "ended_at": 11.0,
        "outcome": "ended",
        "endings": ["done"],
        "said": RIGHT,
    }
    return Record(**right | fields)


def episode(name: str, begin: float = 10.2, end: float = 10.8) -> Episode:
    return Episode(BY_NAME[name], begin, end)


def test_what_ended_as_it_should() -> None:
    assert JUDGE.findings(record(), []) == []
    assert JUDGE.findings(record(), [episode("kill-agent"), episode("kill-balancer")]) == []


def test_lost() -> None:
    lost = record(endings=[], said=HALF)
    [finding] = JUDGE.findings(lost, [episode("kill-balancer")])
    assert finding == "lost: the answer is over without an end"


def test_lost_in_a_batch() -> None:
    [finding] = JUDGE.findings(record(kind="batch"), [])
    assert finding.startswith("lost")


def test_doubled() -> None:
    findings = JUDGE.findings(record(endings=["done", "done"]), [episode("kill-agent")])
    assert findings == ["ended more than once: ['done', 'done']"]


def test_an_error_after_the_end() -> None:
    findings = JUDGE.findings(record(endings=["done", "shutting_down"]), [])
    assert "ended more than once: ['done', 'shutting_down']" in findings


def test_wrong() -> None:
    assert JUDGE.findings(record(said=WRONG), [episode("kill-agent")]) == ["wrong answer"]


def test_wrong_before_an_error_that_is_allowed() -> None:
    failed = record(endings=["shutting_down"], said=WRONG)
    assert JUDGE.findings(failed, [episode("restart-balancer")]) == [
        "wrong beginning of the answer ''"
    ]


def test_endless() -> None:
    endless = record(outcome="unfinished", endings=[], said=HALF)
    [finding] = JUDGE.findings(endless, [episode("kill-balancer")])
    assert finding.startswith("endless")


def test_an_error_needs_a_fault_that_allows_it() -> None:
    failed = record(endings=["shutting_down"], said=HALF)
    assert JUDGE.findings(failed, [episode("restart-balancer")]) == []
    for episodes in ([], [episode("kill-agent")]):
        [finding] = JUDGE.findings(failed, episodes)
        assert finding.startswith("ended with shutting_down, which nothing allows")


def test_a_fault_before_or_after_excuses_nothing() -> None:
    failed = record(endings=["shutting_down"], said=HALF)
    for begin, end in ((11.1, 12.0), (5.0, 9.9 - AFTERMATH)):
        assert JUDGE.findings(failed, [episode("restart-balancer", begin, end)])
    assert not JUDGE.findings(failed, [episode("restart-balancer", 5.0, 10.1 - AFTERMATH)])


def test_an_agent_lost_with_a_request_is_no_excuse_before_the_second() -> None:
    lost = record(endings=["agent_lost"], said=HALF)
    assert JUDGE.findings(lost, [episode("kill-agent")])
    assert not JUDGE.findings(lost, [episode("kill-agent"), episode("partition")])


@pytest.mark.parametrize("outcome", ["refused", "broken"])
def test_a_connection_breaks_only_with_the_balancer(outcome: str) -> None:
    broken = record(outcome=outcome, endings=[], said=None)
    assert JUDGE.findings(broken, [episode("kill-balancer")]) == []
    [finding] = JUDGE.findings(broken, [episode("kill-agent")])
    assert finding.startswith(f"connection {outcome}, which nothing allows")


def test_silence() -> None:
    silent = record(stamps=[10.1, 13.0], ended_at=13.0)
    assert JUDGE.findings(silent, []) == ["silent for 2.9 s, 1.0 s are allowed"]
    assert JUDGE.findings(silent, [episode("stop-agent", 10.2, 12.0)]) == []


def test_silence_that_a_fault_elsewhere_in_time_does_not_explain() -> None:
    silent = record(stamps=[10.1, 13.0, 19.0], ended_at=19.0)
    [finding] = JUDGE.findings(silent, [episode("stop-agent", 10.0, 10.5)])
    assert finding.startswith("silent for 6.0 s, 1.0 s")


def test_silence_of_a_stopped_agent_does_not_grow_with_the_stop() -> None:
    long = Episode(BY_NAME["stop-agent"], 10.0, 100.0)
    assert JUDGE.allowed_silence(11.0, 12.0, [long]) < 1.0 + HEARTBEAT_TIMEOUT + 2.0
    long = Episode(BY_NAME["stop-balancer"], 10.0, 100.0)
    assert JUDGE.allowed_silence(11.0, 12.0, [long]) > 90.0


def test_the_text_of_folded_events() -> None:
    said = [{"choices": [{"delta": {"content": "a"}}]}, {"delta": {"partial_json": "b"}}]
    assert text_of({"x": said}) == "ab"
    assert text_of(None) == ""
