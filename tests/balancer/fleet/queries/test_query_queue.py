from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.queries.query_queue import Hand, Part, QueryQueue
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)
Q, R = RequestId("q"), RequestId("r")


def queue(*agents: LinkId, per_agent: int = 2) -> QueryQueue:
    queue = QueryQueue(per_agent)
    for agent in agents:
        queue.agent_changed(agent, "llama")
    return queue


def hand(query: RequestId, number: int, link: LinkId) -> Hand:
    return Hand(Part(query, number), link)


def test_parts_are_spread_over_the_agents() -> None:
    dispatcher = queue(A, B)
    assert dispatcher.enqueue(Q, None, 5) == [
        hand(Q, 0, A),
        hand(Q, 1, B),
        hand(Q, 2, A),
        hand(Q, 3, B),
    ]
    assert (dispatcher.num_pending, dispatcher.num_asked, dispatcher.num_waiting) == (1, 4, 1)
    assert dispatcher.done(Part(Q, 1)) == [hand(Q, 4, B)]
    assert (dispatcher.num_pending, dispatcher.num_asked, dispatcher.num_waiting) == (0, 4, 0)


def test_queries_take_turns() -> None:
    dispatcher = queue(A, per_agent=1)
    dispatcher.enqueue(Q, None, 4)
    dispatcher.enqueue(R, "llama", 2)
    order = []
    part = Part(Q, 0)
    while hands := dispatcher.done(part):
        [found] = hands
        part = found.part
        order.append(part.query)
    assert order == [R, Q, R, Q, Q] or order == [Q, R, Q, R, Q]


def test_only_agents_with_the_model_get_parts() -> None:
    dispatcher = queue(A)
    assert dispatcher.enqueue(Q, "bert", 1) == []
    assert (
        not dispatcher.has_room("bert")
        and dispatcher.has_room("llama")
        and dispatcher.has_room(None)
    )
    assert dispatcher.agent_changed(B, "bert") == [hand(Q, 0, B)]


def test_what_a_lost_agent_had_goes_elsewhere() -> None:
    dispatcher = queue(A, B)
    dispatcher.enqueue(Q, None, 6)
    assert dispatcher.agent_left(A) == [Q]
    assert dispatcher.spread([Q]) == []
    assert dispatcher.done(Part(Q, 1)) == [hand(Q, 0, B)], "what was lost comes first"
    assert dispatcher.agent_left(A) == []
    dispatcher.check_integrity()


def test_an_agent_that_would_not_answer_gets_nothing_before_it_changes() -> None:
    dispatcher = queue(A)
    dispatcher.enqueue(Q, None, 1)
    assert dispatcher.came_back(Part(Q, 0)) == []
    assert not dispatcher.is_ready
    assert dispatcher.agent_changed(A, "llama") == [hand(Q, 0, A)]


def test_closing_gives_back_what_agents_still_had() -> None:
    dispatcher = queue(A)
    dispatcher.enqueue(Q, None, 3)
    dispatcher.enqueue(R, None, 1)
    withdrawn, hands = dispatcher.closed([Q])
    assert withdrawn == [hand(Q, 0, A), hand(Q, 1, A)]
    assert hands == [hand(R, 0, A)]
    assert dispatcher.holder(Part(Q, 0)) is None and dispatcher.holder(Part(R, 0)) == A
    assert (dispatcher.num_pending, dispatcher.num_asked) == (0, 1)


def test_a_query_follows_its_model_and_keeps_its_place() -> None:
    dispatcher = queue(A, per_agent=1)
    dispatcher.enqueue(RequestId("first"), "llama", 1)
    dispatcher.enqueue(Q, "alias", 1)
    dispatcher.enqueue(R, "llama", 1)
    assert dispatcher.renamed({"alias": "llama"}) == ([Q], [])
    dispatcher.check_integrity()
    assert dispatcher.done(Part(RequestId("first"), 0)) == [hand(Q, 0, A)]


def test_a_query_that_is_renamed_to_what_is_here_is_handed_out() -> None:
    dispatcher = queue(A)
    dispatcher.enqueue(Q, "alias", 1)
    assert dispatcher.renamed({"alias": "llama", "other": "x"}) == ([Q], [hand(Q, 0, A)])
    assert dispatcher.renamed({"alias": "llama"}) == ([], [])
    dispatcher.check_integrity()
