import pytest

from arriero.balancer.control.members import FIRST_RETRY, LAST_RETRY, Failures, Member, member_of
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from tests.balancer.control.builders import report, wished

MODEL = wished("m").assignment
AGENT = AgentId("a")


def failed(*codes: str, serves: str | None = None) -> Member:
    issues = tuple(Issue(code=code, message="it broke") for code in codes)
    return member_of(report("a", told=MODEL, phase="failed", issues=issues, serves=serves), None)


def test_the_pause_before_another_try_doubles() -> None:
    failures = Failures()
    now = 0.0
    pauses = []
    for _ in range(8):
        failures.failed(failed("load_failed"), is_new=True, now=now)
        [failure] = failures
        pauses.append(failure.retry_at - now)
        assert not failures.may_try(AGENT, MODEL, failure.retry_at - 0.1)
        now = failure.retry_at
        assert failures.may_try(AGENT, MODEL, now)
    assert pauses[:3] == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY]
    assert pauses[-1] == LAST_RETRY


def test_a_failure_that_is_seen_again_is_the_same() -> None:
    failures = Failures()
    failures.failed(failed("load_failed"), is_new=True, now=0.0)
    failures.failed(failed("load_failed"), is_new=False, now=20.0)
    assert [failure.retry_at for failure in failures] == [FIRST_RETRY]


@pytest.mark.parametrize(
    ("member", "stops"),
    [
        (failed("not_found"), True),
        (failed(), True),
        (failed("too_large"), False),
        (failed("disk_full", "not_found"), True),
        (failed("too_large", serves="m"), True),
    ],
)
def test_what_is_the_hosts_fault_alone_stops_nobody_else(member: Member, *, stops: bool) -> None:
    failures = Failures()
    failures.failed(member, is_new=True, now=0.0)
    assert (failures.stops(MODEL) is not None) == stops


def test_another_version_is_another_matter() -> None:
    failures = Failures()
    failures.failed(failed("not_found"), is_new=True, now=0.0)
    other = wished("m", 2).assignment
    assert failures.may_try(AGENT, other, 0.0)
    assert failures.stops(other) is None
    failures.keep_only({"m": other}, [AGENT])
    assert not list(failures)


def test_it_is_forgotten_with_its_agent_and_by_success() -> None:
    failures = Failures()
    failures.failed(failed("not_found"), is_new=True, now=0.0)
    failures.keep_only({"m": MODEL}, [])
    assert not list(failures)
    failures.failed(failed("not_found"), is_new=True, now=0.0)
    failures.succeeded(AGENT, "m")
    assert not list(failures)


def test_an_operator_may_ask_for_another_try_at_once() -> None:
    failures = Failures()
    failures.failed(failed("not_found"), is_new=True, now=0.0)
    assert failures.next_retry(0.0) == FIRST_RETRY
    failures.retry(AGENT, 5.0)
    assert failures.may_try(AGENT, MODEL, 5.0)
    assert failures.next_retry(5.0) is None
