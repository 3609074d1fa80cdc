from arriero.balancer.fleet.requests.moves import MAX_AGENTS_LOST, MAX_LOST_ALONE, Moves
from arriero.shared.errors import AgentLost, ShuttingDown


def test_agents_lost_in_a_row_with_nothing_but_this_request_make_it_a_suspect() -> None:
    moves = Moves()
    moves.agent_lost(is_alone=True)
    moves.agent_lost(is_alone=False)
    assert moves.suspicion is None, "others were lost with it"
    moves = Moves()
    for _ in range(MAX_LOST_ALONE):
        assert moves.suspicion is None
        moves.agent_lost(is_alone=True)
    assert moves.suspicion is not None


def test_agents_lost_with_others_make_it_a_suspect_later() -> None:
    moves = Moves()
    for _ in range(MAX_AGENTS_LOST):
        assert moves.suspicion is None
        moves.agent_lost(is_alone=False)
    assert isinstance(moves.suspicion, AgentLost)


def test_the_error_of_an_answer_that_stays_says_why_it_left() -> None:
    moves = Moves()
    moves.moved("drained")
    assert isinstance(moves.stuck("a1", 30.0), ShuttingDown)
    moves.moved("silent")
    error = moves.stuck("a1", 30.0)
    assert isinstance(error, AgentLost)
    assert "a1" in error.message and "30 s" in error.message
    moves.moved("restarted")
    assert "the balancer was restarted" in moves.stuck("", 30.0).message
    assert moves.num == 3
