"""Who sent a request is known at its end."""

from arriero.balancer.fleet.caller import ANONYMOUS, STRANGERS, Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import Decision, Deliver, Finish, LinkId, Send, Settle
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.errors import Unauthorized
from arriero.shared.inference import Failed, RequestId
from arriero.shared.messages import Start
from arriero.shared.queries import Tokenize
from tests.balancer.fleet.builders import ended, hello, output, request

A, Q, R = LinkId(1), RequestId("q"), RequestId("r")
ALICE = Caller("alice")
QUERY = QueryRequest(kind="text", parts=(Tokenize(text="x"),))


def callers(decisions: list[Decision]) -> list[Caller]:
    return [each.ending.caller for each in decisions if isinstance(each, Finish)]


def test_of_a_request_that_ran() -> None:
    fleet = Fleet(Limits())
    fleet.agent_joined(A, hello(), 0.0)
    fleet.request_arrived(R, request(), 0.0, caller=ALICE)
    assert callers(fleet.agent_said(A, output(ended("r")), 1.0)) == [ALICE]


def test_of_a_query_that_was_cancelled() -> None:
    fleet = Fleet(Limits())
    fleet.query_arrived(Q, QUERY, 0.0, caller=ALICE)
    assert callers(fleet.cancel([Q], 1.0)) == [ALICE]


def test_of_what_was_refused() -> None:
    fleet = Fleet(Limits())
    fleet.drain(0.0, 1.0)
    assert callers(fleet.request_arrived(R, request(), 0.0, caller=ALICE)) == [ALICE]
    assert callers(fleet.query_arrived(Q, QUERY, 0.0, caller=ALICE)) == [ALICE]


def test_without_a_word_it_is_anonymous() -> None:
    fleet = Fleet(Limits(max_buffered_requests=0))
    assert callers(fleet.request_arrived(R, request(), 0.0)) == [ANONYMOUS]


def test_a_key_is_one_account_wherever_it_is_used() -> None:
    assert Caller("alice", "1.1.1.1").account == Caller("alice", "2.2.2.2").account
    assert Caller("alice").account != Caller("bob").account


def test_without_a_key_each_address_is_an_account() -> None:
    assert Caller(address="1.1.1.1").account != Caller(address="2.2.2.2").account
    assert Caller(address="1.1.1.1").account == Caller(address="1.1.1.1", user_agent="x").account
    assert Caller().is_anonymous
    assert not ALICE.is_anonymous


def test_a_network_of_one_host_is_an_account_and_its_connections_are_told_apart() -> None:
    one = Caller(address="2001:db8::1", connection=5)
    other = Caller(address="2001:db8::ffff:2", connection=5)
    assert one.account == other.account
    assert one.flow != other.flow, "another address may have a connection of the same number"
    assert one.account != Caller(address="2001:db8:0:1::1").account
    assert one.account == Caller(address="2001:db8::1%eth0").account
    assert Caller(address="::ffff:1.1.1.1").account != Caller(address="::ffff:2.2.2.2").account
    assert Caller(address="no:address").account.address == "no:address"
    assert Caller("alice", "2001:db8::1", connection=5).flow is None
    assert Caller(address="1.1.1.1").flow is None


# ---- what it made ends with its key

OWNER = Caller("bob", owner="bob@1")
OTHER = Caller("bob", owner="bob@2")
REVOKED = Unauthorized("the key 'bob' was revoked")


def failures(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [
        (each.request, each.event.error.code)
        for each in decisions
        if isinstance(each, Deliver) and isinstance(each.event, Failed)
    ]


def test_a_revoked_callers_requests_end_wherever_they_are() -> None:
    fleet = Fleet(Limits())
    fleet.agent_joined(A, hello(slots=1), 0.0)
    fleet.request_arrived(R, request(), 0.0, caller=OWNER)
    fleet.request_arrived(RequestId("waits"), request(), 0.0, caller=OWNER)
    fleet.request_arrived(RequestId("stays"), request(), 0.0, caller=OTHER)
    fleet.query_arrived(Q, QUERY, 0.0, caller=OWNER)
    decisions = fleet.revoked("bob@1", REVOKED, 1.0)
    assert sorted(failures(decisions)) == [("r", "unauthorized"), ("waits", "unauthorized")]
    assert [each.outcome for each in decisions if isinstance(each, Settle)] == [REVOKED]
    assert {each.name for each in callers(decisions)} == {"bob"}
    started = [each.message for each in decisions if isinstance(each, Send)]
    assert [each.id for each in started if isinstance(each, Start)] == ["stays"]
    fleet.check_integrity()
    assert fleet.revoked("bob@1", REVOKED, 1.0) == []


def test_agents_learn_a_scope_and_not_whose_it_is() -> None:
    alice = Caller("alice", owner="alice@1700000000.000001")
    later = Caller("alice", owner="alice@1800000000.000001")
    scopes = {each.scope for each in (alice, later, ANONYMOUS)}
    assert len(scopes) == 3 and ANONYMOUS.scope is None
    assert alice.scope is not None and "alice" not in alice.scope
    assert alice.scope == Caller("alice", address="1.2.3.4", owner=alice.owner).scope
    fleet = Fleet(Limits())
    fleet.agent_joined(A, hello(), 0.0)
    started = fleet.request_arrived(R, request(), 0.0, caller=alice)
    starts = [each.message for each in started if isinstance(each, Send)]
    assert [each.scope for each in starts if isinstance(each, Start)] == [alice.scope]


def test_strangers_hold_together_where_keys_are_needed() -> None:
    one, other = Caller(address="1.1.1.1"), Caller(address="2.2.2.2")
    assert one.holder(has_keys=True) == other.holder(has_keys=True) == STRANGERS
    assert one.holder(has_keys=False) == one.account != other.holder(has_keys=False)
    key = Caller("alice", "1.1.1.1")
    assert key.holder(has_keys=True) == key.account != STRANGERS
