import pytest

from arriero.shared.errors import BY_CODE as ERRORS
from bench.chaos.faults import BY_NAME, KINDS, Need, chosen, possible
from bench.chaos.strikes import STRIKES


def test_every_kind_can_be_carried_out() -> None:
    assert set(STRIKES) == set(BY_NAME)
    assert len(BY_NAME) == len(KINDS)


def test_allowed_errors_are_codes_that_there_are() -> None:
    codes = {code for kind in KINDS for code in kind.errors}
    assert codes <= set(ERRORS)


def test_kinds_by_name() -> None:
    assert [kind.name for kind in chosen(["vanish", "ghost"])] == ["vanish", "ghost"]
    with pytest.raises(ValueError, match="no fault 'meteor'; there are kill-engine, "):
        chosen(["vanish", "meteor"])


def test_what_a_machine_without_namespaces_can_try() -> None:
    names = {kind.name for kind in possible(KINDS, frozenset())}
    assert {"kill-agent", "stop-agent", "restart-balancer", "vanish"} <= names
    assert not names & {"partition", "ghost", "disk-full", "clock"}
    assert len(possible(KINDS, frozenset(Need))) == len(KINDS)


def test_a_pause_may_grow_with_the_fault() -> None:
    assert BY_NAME["kill-agent"].allowed_pause(10.0) == 1.0
    assert BY_NAME["stop-balancer"].allowed_pause(3.0) == 4.0
