"""What happens is counted for the fleet, its agent and its model; and told to several."""

from arriero.balancer.fleet.recorder import NOWHERE, Origin, Recorder
from arriero.balancer.history.endings import Endings
from arriero.balancer.history.recorder import HistoryRecorder, Recorders
from arriero.balancer.history.series import MAX_NAMES, OTHERS, Levels
from arriero.balancer.history.usage import UsageLedger
from arriero.balancer.store.records import DAY, EndingFilter
from tests.balancer.fleet.recording import RecordingRecorder
from tests.balancer.history.builders import TOTALS, ending

HERE = Origin("ana", "tiny")


def recorder() -> tuple[HistoryRecorder, Endings]:
    endings = Endings()
    return HistoryRecorder(endings, UsageLedger("run"), lambda: 1234.5), endings


def test_a_step_holds_what_happened_in_it() -> None:
    history, endings = recorder()
    history.tokens(5, HERE)
    history.tokens(2, Origin("luz", "tiny"))
    history.first_token(0.5, HERE)
    history.between_tokens((0.1, 0.1), HERE)
    history.ended(ending())
    step = history.close_step(1234, 1, TOTALS)
    assert (step.at, step.seconds) == (1234, 1)
    assert step.levels == Levels(queue_depth=3, queue_peak=3, slots_busy=5, slots_total=8, agents=2)
    assert step.fleet == step.models["tiny"]
    assert step.fleet.completion_tokens == 7
    assert {name: sums.completion_tokens for name, sums in step.agents.items()} == {
        "ana": 5,
        "luz": 2,
    }
    assert step.agents["ana"].ended == {"stop": 1}
    [kept] = endings.choose(EndingFilter())
    assert (kept.id, kept.ended_at, kept.balancer) == ("r", 1234.5, None)
    empty = history.close_step(1235, 1, TOTALS)
    assert (empty.fleet.completion_tokens, empty.agents, empty.models) == (0, {}, {})


def test_names_that_clients_write_are_no_models() -> None:
    history, endings = recorder()
    history.ended(ending(code="model_not_found", agent=None, model="any text"))
    history.ended(ending(code="queue_timeout", agent=None))
    step = history.close_step(0, 1, TOTALS)
    assert step.models.keys() == {"tiny"}
    assert step.fleet.ended == {"model_not_found": 1, "queue_timeout": 1}
    assert len(endings) == 2


def test_the_number_of_names_is_bounded() -> None:
    history, _ = recorder()
    for number in range(5000):
        history.tokens(1, Origin(f"a{number}", "tiny"))
    step = history.close_step(0, 1, TOTALS)
    assert len(step.agents) == MAX_NAMES
    assert OTHERS in step.agents
    assert sum(each.completion_tokens for each in step.agents.values()) == 5000


def test_all_recorders_are_told() -> None:
    one, two = RecordingRecorder(), RecordingRecorder()
    both: Recorder = Recorders(one, two)
    both.first_token(0.5, HERE)
    both.between_tokens([0.1], HERE)
    both.tokens(3, NOWHERE)
    both.ended(ending())
    for each in (one, two):
        assert (each.first_tokens, each.gaps, each.counts) == ([0.5], [0.1], [3])
        assert [ended.request_id for ended in each.endings] == ["r"]


def test_usage_counts_by_the_day_of_the_end() -> None:
    ledger = UsageLedger("run")
    history = HistoryRecorder(Endings(), ledger, lambda: 5 * DAY + 86_399.5)
    history.ended(ending())
    assert [row.day for row in ledger.take_unwritten()] == [5]


def test_an_ended_request_says_which_of_several_balancers_had_it() -> None:
    history, endings = recorder()
    history.here = lambda: "east"
    history.ended(ending())
    [kept] = endings.choose(EndingFilter())
    assert kept.balancer == "east"
