from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.lane import Hand, Lane, Part
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)
Q, R = RequestId("q"), RequestId("r")


def lane(*agents: LinkId, per_agent: int = 2) -> Lane:
    lane = Lane(per_agent)
    for agent in agents:
        lane.agent_changed(agent, "llama")
    return lane


def hand(query: RequestId, number: int, link: LinkId) -> Hand:
    return Hand(Part(query, number), link)


def test_parts_are_spread_over_the_agents() -> None:
    desk = lane(A, B)
    assert desk.opened(Q, None, 5) == [hand(Q, 0, A), hand(Q, 1, B), hand(Q, 2, A), hand(Q, 3, B)]
    assert (desk.num_pending, desk.num_asked, desk.num_waiting) == (1, 4, 1)
    assert desk.done(Part(Q, 1)) == [hand(Q, 4, B)]
    assert (desk.num_pending, desk.num_asked, desk.num_waiting) == (0, 4, 0)


def test_queries_take_turns() -> None:
    desk = lane(A, per_agent=1)
    desk.opened(Q, None, 4)
    desk.opened(R, "llama", 2)
    order = []
    part = Part(Q, 0)
    while hands := desk.done(part):
        [found] = hands
        part = found.part
        order.append(part.query)
    assert order == [R, Q, R, Q, Q] or order == [Q, R, Q, R, Q]


def test_only_agents_with_the_model_get_parts() -> None:
    desk = lane(A)
    assert desk.opened(Q, "bert", 1) == []
    assert not desk.has_room("bert") and desk.has_room("llama") and desk.has_room(None)
    assert desk.agent_changed(B, "bert") == [hand(Q, 0, B)]


def test_what_a_lost_agent_had_goes_elsewhere() -> None:
    desk = lane(A, B)
    desk.opened(Q, None, 6)
    lost, hands = desk.agent_left(A)
    assert lost == [Part(Q, 0), Part(Q, 2)]
    assert hands == []
    assert desk.done(Part(Q, 1)) == [hand(Q, 0, B)], "what was lost comes first"
    assert desk.agent_left(A) == ([], [])
    desk.check_integrity()


def test_an_agent_that_would_not_answer_gets_nothing_before_it_changes() -> None:
    desk = lane(A)
    desk.opened(Q, None, 1)
    assert desk.came_back(Part(Q, 0)) == []
    assert not desk.is_ready
    assert desk.agent_changed(A, "llama") == [hand(Q, 0, A)]


def test_closing_gives_back_what_agents_still_had() -> None:
    desk = lane(A)
    desk.opened(Q, None, 3)
    desk.opened(R, None, 1)
    withdrawn, hands = desk.closed([Q])
    assert withdrawn == [hand(Q, 0, A), hand(Q, 1, A)]
    assert hands == [hand(R, 0, A)]
    assert desk.holder(Part(Q, 0)) is None and desk.holder(Part(R, 0)) == A
    assert (desk.num_pending, desk.num_asked) == (0, 1)
