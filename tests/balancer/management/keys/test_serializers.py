"""No answer has a digest, and only a new key has its secret."""

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.management.keys.serializers import key_json, new_key_json
from tests.balancer.access.builders import record, secret

KEY = record(
    "rack", 1, "agent", limits=CallerLimits(models=("m",)), labels=(("gpu", "yes"),), expires_at=9.0
)


def test_its_fields() -> None:
    fields = key_json(KEY, 8.0)
    assert (fields["models"], fields["labels"]) == (["m"], {"gpu": "yes"})
    assert (fields["is_valid"], key_json(KEY, 9.0)["is_valid"]) == (True, False)
    assert key_json(KEY, 8.0)["last_used_at"] is None
    assert key_json(KEY, 8.0, 5.0)["last_used_at"] == 5.0
    assert KEY.digest not in str(fields)


def test_a_new_one_has_its_secret() -> None:
    assert new_key_json(KEY, secret(1), 8.0) == {**key_json(KEY, 8.0), "key": secret(1)}
