"""Who holds a key, and until when."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.access.keyring import Keyring
from arriero.shared.errors import Unauthorized
from tests.balancer.access.builders import record, ring_of, secret

ROOT = Path(__file__).parents[3]


def test_it_is_open_until_there_was_a_key() -> None:
    assert ring_of().is_open
    assert not ring_of(record("a", 1)).is_open
    assert not ring_of(record("a", 1, revoked_at=2.0)).is_open, "a revoked one opens nothing up"


def test_a_key_leads_to_its_holder() -> None:
    ring = ring_of(record("a", 1), record("b", 2, "viewer"))
    assert ring.identify(secret(2), 10.0) == record("b", 2, "viewer").identity
    with pytest.raises(Unauthorized, match="not known"):
        ring.identify(secret(3), 10.0)


@pytest.mark.parametrize("digest_like", [record("a", 1).digest, "", "ark_"])
def test_what_is_kept_of_a_key_opens_nothing(digest_like: str) -> None:
    with pytest.raises(Unauthorized):
        ring_of(record("a", 1)).identify(digest_like, 10.0)


def test_a_revoked_or_expired_key_says_so() -> None:
    ring = ring_of(record("a", 1, revoked_at=2.0), record("b", 2, expires_at=20.0))
    with pytest.raises(Unauthorized, match="'a' was revoked"):
        ring.identify(secret(1), 10.0)
    ring.identify(secret(2), 19.9)
    with pytest.raises(Unauthorized, match="'b' expired"):
        ring.identify(secret(2), 20.0)


def test_when_a_key_was_used_is_known_until_it_is_another_one() -> None:
    key = record("a", 1)
    ring = ring_of(key)
    assert ring.used_at(key) is None
    with pytest.raises(Unauthorized):
        ring.identify(secret(2), 10.0)
    assert ring.used_at(key) is None
    ring.identify(secret(1), 11.0)
    rotated = record("a", 2, rotated_at=12.0)
    ring.put(rotated, 12.0)
    assert ring.used_at(rotated) == 11.0, "its holder is the same"
    ring.used(rotated.identity, 13.0)
    assert ring.used_at(rotated) == 13.0
    later = record("a", 3, created_at=20.0)
    ring.put(later, 20.0)
    assert ring.used_at(later) is None
    ring.check_integrity()


def test_who_loses_a_key_is_told_once() -> None:
    ring = ring_of(record("a", 1), record("b", 2))
    revoked = record("a", 1, revoked_at=11.0)
    assert ring.put(revoked, 11.0) == [record("a", 1).identity]
    assert ring.put(revoked, 12.0) == []
    assert ring.put(record("b", 3, rotated_at=12.0), 12.0) == [record("b", 2).identity]
    assert ring.identify(secret(3), 12.0).name == "b"
    assert ring.forget("b", 13.0) == [record("b", 3, rotated_at=12.0).identity]


def test_expiry_is_a_deadline() -> None:
    ring = ring_of(record("a", 1, expires_at=30.0), record("b", 2, expires_at=20.0))
    assert ring.next_deadline() == 20.0
    assert ring.due(19.0) == []
    assert [holder.name for holder in ring.due(20.0)] == ["b"]
    assert ring.due(20.0) == []
    assert ring.next_deadline() == 30.0


KEYS = st.builds(
    record,
    st.sampled_from("abc"),
    st.integers(0, 5),
    expires_at=st.none() | st.integers(0, 20).map(float),
    revoked_at=st.none() | st.just(1.0),
)


@given(st.lists(st.tuples(KEYS, st.integers(0, 20))))
def test_holders_are_exactly_those_whose_key_is_valid(changes: list[tuple[AccessKey, int]]) -> None:
    ring, now = Keyring(), 0.0
    holders: dict[str, str] = {}
    for key, pause in changes:
        now += pause
        if any(each.digest == key.digest and each.name != key.name for each in ring.records()):
            continue  # secrets are random: two names never have the same
        for ended in ring.put(key, now):
            del holders[ended.digest]
        valid = {each.digest: each.name for each in ring.records() if not each.problem(now)}
        holders |= valid
        assert holders == valid
        assert ring.num_valid == len(valid)
        ring.check_integrity()


COMPARING = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
SECRET_NAMES = ("key", "secret", "token", "credential", "password")


def test_only_the_ring_compares_keys_and_in_constant_time() -> None:
    """A `==` on what a caller sent tells, by its time, how much of it was right."""
    rooms = [ROOT / "balancer" / "access", ROOT / "balancer" / "api" / "access"]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in rooms
        for path in room.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(isinstance(each, COMPARING) for each in node.ops)
        and any(
            isinstance(each, ast.Name) and each.id in SECRET_NAMES
            for each in (node.left, *node.comparators)
        )
    ]
    assert found == []
    source = (ROOT / "balancer" / "access" / "keyring.py").read_text()
    assert "hmac.compare_digest(found.digest, digest)" in source
