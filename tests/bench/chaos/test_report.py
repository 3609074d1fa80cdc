from bench.chaos.faults import BY_NAME
from bench.chaos.judge import Episode, Judge
from bench.chaos.plan import Fault, Round
from bench.chaos.record import Record
from bench.chaos.report import Row, in_full, line, rows
from bench.chaos.run import Finding, RoundResult

KILL, STOP = BY_NAME["kill-agent"], BY_NAME["stop-agent"]
MOVED = Record("text", 10.0, [10.2, 10.9], 11.0, "ended", endings=["done"], num_moves=1)
FAILED = Record("text", 10.0, [10.1], 10.5, "ended", endings=["agent_lost"])
BEFORE = Record("text", 1.0, [1.1], 9.0, "ended", endings=["done"])
JUDGE = Judge({}, quiet=1.0)


def result(*episodes: Episode, findings: list[Finding] | None = None) -> RoundResult:
    faults = tuple(Fault(each.kind, 1.0, 0.0, 0, 0.5) for each in episodes)
    planned = Round(4, faults, seed=1)
    return RoundResult(
        planned, list(episodes), [MOVED, FAILED, BEFORE], findings or [], is_last=False
    )


def test_what_a_fault_touched() -> None:
    table = rows([result(Episode(KILL, 10.15, 10.8))], JUDGE)
    assert table == {
        KILL: Row(count=1, touched=2, moved=1, errors=1, silence=MOVED.stamps[1] - 10.2, bound=2.0)
    }


def test_silences_of_two_faults_at_once_are_nobodys() -> None:
    table = rows([result(Episode(STOP, 10.0, 10.8), Episode(KILL, 10.0, 10.8))], JUDGE)
    assert list(table) == [KILL, STOP]
    assert {row.silence for row in table.values()} == {0.0}


def test_a_round_in_a_line() -> None:
    assert line(result(Episode(KILL, 10.0, 10.8))) == (
        "   4 kill-agent agent-1: 3 requests, 1 moved, 1 errors, longest silence 7.9 s, clean"
    )
    found = line(result(Episode(KILL, 10.0, 10.8), findings=[Finding(4, "lost")]))
    assert found.endswith("1 FINDINGS")


def test_a_finding_has_the_whole_record() -> None:
    shown = in_full([Finding(4, "lost", FAILED), Finding(5, "a slot is left")])
    assert shown.startswith('round 4: lost\n{"kind": "text", "sent_at": 10.0')
    assert shown.endswith("round 5: a slot is left")
