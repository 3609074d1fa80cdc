"""A key survives the store as it is."""

import pytest

from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.saved_keys import restored, saved
from arriero.balancer.store.records import SavedKey
from arriero.shared.errors import InvalidRequest
from tests.balancer.access.builders import record


@pytest.mark.parametrize(
    "key",
    [
        record("a", 1),
        record("b", 2, "agent", labels=(("gpu", "ñ"),), limits=CallerLimits(models=("m",))),
        record("c", 3, "admin", limits=CallerLimits(max_tokens=5, priority="batch"), revision=7),
        record("d", 4, expires_at=5.5, revoked_at=3.25, rotated_at=2.0),
    ],
)
def test_it_comes_back_as_it_was(key: AccessKey) -> None:
    assert restored(saved(key)) == key


@pytest.mark.parametrize("fields", [{"role": "emperor"}, {"limits": '{"max_speed": 1}'}])
def test_what_a_later_version_wrote_is_refused(fields: dict[str, str]) -> None:
    plain = saved(record("a", 1))
    names = [name for name in plain.__slots__ if name not in fields]
    with pytest.raises(InvalidRequest):
        restored(SavedKey(**{name: getattr(plain, name) for name in names}, **fields))
