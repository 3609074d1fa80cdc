from bench.comparison import Outcome, rows
from bench.figures import FIRST_TOKEN, TOKENS_PER_SECOND
from bench.scenarios import SCENARIOS

FAST, SLOW = ({TOKENS_PER_SECOND: speed, FIRST_TOKEN: 1.0} for speed in (20.0, 10.0))


def test_a_goal_is_one_beside_llama_server() -> None:
    beside = Outcome(SCENARIOS["streams"], {"arriero": [FAST, FAST], "llama-server": [SLOW, SLOW]})
    first, second = rows(beside)
    assert (first["arriero"], first["llama-server"], first["ratio_text"]) == (
        20.0,
        10.0,
        "2.00 (2.00 to 2.00)",
    )
    assert (first["goal"], first["is_met"]) == ("≥ 1", True)
    assert (second["goal"], second["is_met"]) == (None, None)
    [former, _] = rows(Outcome(SCENARIOS["streams"], {"now": [SLOW], "former": [FAST]}))
    assert (former["ratio"]["median"], former["goal"]) == (0.5, None)


def test_only_figures_that_all_rounds_have_are_compared() -> None:
    short = {TOKENS_PER_SECOND: 5.0}
    outcome = Outcome(SCENARIOS["streams"], {"now": [FAST, short], "former": [SLOW, SLOW]})
    assert [row["figure"] for row in rows(outcome)] == [TOKENS_PER_SECOND]
