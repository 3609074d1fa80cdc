"""What may be asked for, and what a key becomes by it."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from arriero.balancer.access import key_spec
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.key_spec import KeySpec, created, revoked, rotated, surplus
from arriero.balancer.access.keyring import MAX_KEYS, Keyring
from arriero.shared.errors import Conflict, InvalidRequest, NotFound
from arriero.shared.validation import parse_json
from tests.balancer.access.builders import record, ring_of

SPEC: TypeAdapter[KeySpec] = TypeAdapter(KeySpec)
ADMIN = record("root", 99, "admin")


def spec(text: str) -> KeySpec:
    return parse_json(SPEC, text)


def test_a_spec_in_full() -> None:
    given = spec(
        '{"name": "ci", "role": "inference", "models": ["a"], "expires": "90d",'
        ' "priority": "default", "default_priority": "batch",'
        ' "requests_per_minute": 6, "tokens_per_minute": 7,'
        ' "max_concurrent": 8, "max_queued": 9, "max_tokens": 10}'
    )
    key = created(ring_of(ADMIN), given, "digest", 100.0)
    assert key.limits == CallerLimits(
        models=("a",),
        requests_per_minute=6,
        tokens_per_minute=7,
        max_concurrent=8,
        max_queued=9,
        max_tokens=10,
        priority="default",
        default_priority="batch",
    )
    assert (key.digest, key.created_at, key.revision) == ("digest", 100.0, 1)
    assert key.expires_at == 100.0 + 90 * 86400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"role": "viewer"}', "name"),
        ('{"name": "", "role": "viewer"}', "name"),
        ('{"name": "a b", "role": "viewer"}', "name"),
        ('{"name": "anonymous", "role": "viewer"}', "name"),
        ('{"name": "admin-key-file", "role": "viewer"}', "name"),
        ('{"name": "a", "role": "root"}', "role"),
        ('{"name": "a", "role": "viewer", "expires": "soon"}', "expires"),
        ('{"name": "a", "role": "viewer", "expires": 0}', "expires"),
        ('{"name": "a", "role": "viewer", "expires": true}', "expires"),
        ('{"name": "a", "role": "viewer", "models": []}', "models"),
        ('{"name": "a", "role": "viewer", "max_tokens": 0}', "max_tokens"),
        ('{"name": "a", "role": "viewer", "key": "mine"}', "key"),
    ],
)
def test_what_is_wrong_is_named(body: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        spec(body)
    assert refusal.value.field == field


def test_labels_are_for_agents() -> None:
    given = spec('{"name": "a", "role": "agent", "labels": {"zone": "1", "gpu": "yes"}}')
    key = created(ring_of(ADMIN), given, "d", 1.0)
    assert key.labels == (("gpu", "yes"), ("zone", "1"))
    with pytest.raises(InvalidRequest, match="labels"):
        created(ring_of(ADMIN), replace(given, role="viewer"), "d", 1.0)


def test_the_first_key_is_an_admins() -> None:
    with pytest.raises(InvalidRequest, match="first key must have the role admin"):
        created(Keyring(), KeySpec(name="a", role="inference"), "d", 1.0)
    assert created(Keyring(), KeySpec(name="a", role="admin"), "d", 1.0).role == "admin"


def test_a_name_is_free_again_when_its_key_is_over() -> None:
    given = KeySpec(name="ci", role="inference")
    with pytest.raises(Conflict, match="'ci' exists already"):
        created(ring_of(ADMIN, record("ci", 1)), given, "d", 10.0)
    over = record("ci", 1, revoked_at=5.0, revision=2)
    assert created(ring_of(ADMIN, over), given, "d", 10.0).revision == 3


def test_revoking_is_for_good() -> None:
    ring = ring_of(record("ci", 1))
    key = revoked(ring, "ci", 20.0)
    assert (key.revoked_at, key.revision) == (20.0, 2)
    ring.put(key, 20.0)
    assert revoked(ring, "ci", 30.0) == key
    with pytest.raises(NotFound, match="no key 'other'"):
        revoked(ring, "other", 20.0)


def test_rotating_keeps_all_but_the_secret() -> None:
    key = record("ci", 1, limits=CallerLimits(models=("a",)), expires_at=100.0)
    changed = rotated(ring_of(key), "ci", "new", 20.0)
    assert changed == replace(key, digest="new", rotated_at=20.0, revision=2)
    with pytest.raises(Conflict, match="expired"):
        rotated(ring_of(key), "ci", "new", 100.0)


def test_the_key_in_the_file_is_changed_there() -> None:
    ring = ring_of(record("admin-key-file", 1, "admin"))
    with pytest.raises(Conflict, match="--admin-key-file"):
        revoked(ring, "admin-key-file", 1.0)
    with pytest.raises(Conflict, match="--admin-key-file"):
        rotated(ring, "admin-key-file", "d", 1.0)


def test_those_that_are_over_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_spec, "MAX_KEYS", 3)
    ring = ring_of(ADMIN, record("a", 1, revoked_at=6.0), record("b", 2, revoked_at=5.0))
    assert surplus(ring, "a", 10.0) is None, "it takes the place of the old one"
    assert surplus(ring, "new", 10.0) == ring.get("b")
    with pytest.raises(Conflict, match="limit"):
        surplus(ring_of(ADMIN, record("a", 1), record("b", 2)), "new", 10.0)
    assert MAX_KEYS == 1000


def test_what_is_said_by_nobody_is_within_what_is_allowed() -> None:
    above = spec(
        '{"name": "a", "role": "inference", "priority": "default",'
        ' "default_priority": "interactive"}'
    )
    with pytest.raises(InvalidRequest, match="interactive is above default") as refusal:
        created(ring_of(ADMIN), above, "d", 1.0)
    assert refusal.value.field == "default_priority"
    same = replace(above, default_priority="default")
    assert created(ring_of(ADMIN), same, "d", 1.0).limits.default_priority == "default"
