"""Whose an id is."""

from dataclasses import replace

from arriero.balancer.access.identity import Identity
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.identities import MAX_GONE, REMEMBERED, Identities
from arriero.shared.inference import AgentId
from tests.balancer.fleet.builders import hello

A, B = LinkId(1), LinkId(2)
ID = AgentId("a1")
HELLO = hello(ID)
ONE = Identity(name="one", role="agent", owner="1")
TWO = Identity(name="two", role="agent", owner="2")


def identities() -> Identities:
    return Identities(b"s" * 32, 4)


def test_an_id_belongs_to_the_first_process_that_said_it() -> None:
    known = identities()
    assert known.refusal(HELLO, None, 0.0) is None
    secret = known.joined(A, HELLO, None).secret
    assert known.refusal(HELLO, None, 0.0) is not None
    for guess in ("", "x", secret[:-1], secret + "0", "\udcff"):
        assert known.refusal(replace(HELLO, secret=guess), None, 0.0) is not None
    assert known.refusal(replace(HELLO, secret=secret), None, 0.0) is None


def test_each_claim_has_a_secret_that_others_cannot_know() -> None:
    known = identities()
    secrets = {
        known.joined(A, HELLO, None).secret,
        known.joined(B, hello("a2"), None).secret,
        Identities(b"t" * 32, 4).joined(A, HELLO, None).secret,
    }
    assert len(secrets) == 3
    assert all(len(secret) == 64 for secret in secrets)


def test_the_same_process_keeps_what_it_had_earned() -> None:
    known = identities()
    first = known.joined(A, HELLO, None)
    first.breaker.answered(64)
    known.left(ID, 0.0)
    again = known.joined(B, replace(HELLO, secret=first.secret), None)
    assert again is first


def test_who_left_is_remembered_for_a_while() -> None:
    known = identities()
    first = known.joined(A, HELLO, None)
    known.heard(ID)
    known.left(ID, 0.0)
    assert known.refusal(HELLO, None, REMEMBERED - 1) is not None
    assert known.refusal(HELLO, None, REMEMBERED) is None
    second = known.joined(B, HELLO, None)
    assert second.secret != first.secret
    assert known.refusal(replace(HELLO, secret=first.secret), None, REMEMBERED) is not None


def test_an_agent_that_never_heard_its_secret_is_not_locked_out() -> None:
    known = identities()
    known.joined(A, HELLO, None)
    known.left(ID, 0.0)  # before anything came from it: its welcome may be lost
    assert known.refusal(HELLO, None, 0.0) is None


def test_agents_with_other_keys_that_say_one_id_are_different_agents() -> None:
    known = identities()
    ids = {known.known_as(HELLO, holder).agent_id for holder in (None, ONE, TWO)}
    assert len(ids) == 3 and known.known_as(HELLO, None) == HELLO
    assert known.known_as(replace(HELLO, host=ID), ONE).host == known.known_as(HELLO, ONE).agent_id
    thief = known.joined(A, HELLO, TWO)
    assert known.refusal(HELLO, ONE, 0.0) is None, "whoever comes first"
    owner = known.joined(B, HELLO, ONE)
    assert owner is not thief
    known.left(known.known_as(HELLO, TWO).agent_id, 0.0)
    assert known.refusal(HELLO, ONE, 0.0) is None
    assert known.joined(B, HELLO, replace(ONE, digest="rotated")) is owner
    known.check_integrity()


def test_an_id_under_which_an_agent_is_known_is_refused_to_other_keys() -> None:
    known = identities()
    known.joined(A, HELLO, ONE)
    seen = known.known_as(HELLO, ONE).agent_id
    theft = replace(HELLO, agent_id=seen)
    assert (
        known.refusal(theft, TWO, 0.0)
        == "an agent with another access key already uses this agent id"
    )
    known.left(seen, 0.0)
    assert known.refusal(theft, TWO, REMEMBERED - 1) is not None
    assert known.refusal(theft, TWO, REMEMBERED) is None
    known.joined(B, theft, TWO)
    assert known.refusal(HELLO, ONE, REMEMBERED) is None, "the owner is let in all the same"


def test_the_same_process_may_come_with_another_key() -> None:
    known = identities()
    first = known.joined(A, HELLO, ONE)
    proof = replace(HELLO, secret=first.secret)
    assert known.refusal(proof, TWO, 0.0) is None
    assert known.known_as(proof, TWO) == replace(known.known_as(HELLO, ONE), secret=first.secret)
    assert known.joined(B, proof, TWO) is first
    assert known.refusal(HELLO, ONE, 0.0) is not None, "it is the other key's now"


def test_few_of_those_that_are_gone_are_remembered() -> None:
    known = identities()
    for number in range(MAX_GONE + 1):
        id = AgentId(f"a{number}")
        known.joined(LinkId(number), hello(id), None)
        known.heard(id)
        known.left(id, 0.0)
        if number % 100 == 0:
            known.check_integrity()
    known.check_integrity()
    assert known.refusal(hello("a0"), None, 0.0) is None
    assert known.refusal(hello("a1"), None, 0.0) is not None
