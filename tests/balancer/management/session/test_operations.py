"""The session's routes are described as ones that need no key."""

from arriero.balancer.management.session.operations import OPERATIONS


def test_they_need_no_key() -> None:
    assert all(each.is_keyless for each in OPERATIONS)
    assert {each.method for each in OPERATIONS} == {"GET", "POST", "DELETE"}
