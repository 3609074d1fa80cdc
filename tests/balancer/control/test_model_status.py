import pytest

from arriero.balancer.control.members import Failures, Member, member_of
from arriero.balancer.control.model_status import ModelStatus, by_model, shortage_of, status_of
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Work
from tests.balancer.control.builders import GIB, report, wished

MODEL = wished("m", 2)
OLD = wished("m", 1).assignment


def status(
    *members: Member, is_in_demand: bool = True, failures: Failures | None = None
) -> ModelStatus:
    return status_of(
        MODEL, members, is_in_demand=is_in_demand, failures=failures or Failures(), shortage=None
    )


def loading(phase: str, progress: float | None) -> Member:
    work = Work(revision=1, assignment=MODEL.assignment, phase=phase, progress=progress)  # type: ignore[arg-type]
    return member_of(report("a", work=work), None)


def test_a_model_that_some_agent_serves_is_loaded() -> None:
    members = [member_of(report("a", told=MODEL.assignment), None), loading("fetching", 0.5)]
    found = status(*members)
    assert (found.status, found.progress, found.agents) == ("loaded", None, ("a", "a"))


@pytest.mark.parametrize(
    ("phase", "progress", "whole"),
    [("fetching", 0.5, 0.25), ("fetching", None, 0.0), ("loading", 0.5, 0.75)],
)
def test_progress_is_of_fetching_and_loading_together(
    phase: str, progress: float | None, whole: float
) -> None:
    found = status(loading(phase, progress))
    assert (found.status, found.progress) == ("loading", whole)


def test_without_an_agent_it_waits_or_is_unloaded() -> None:
    assert status().status == "waiting"
    assert status(is_in_demand=False).status == "unloaded"


def test_a_failure_says_which_agent_and_why_and_who_waits_behind_it() -> None:
    issue = Issue(
        code="not_a_gguf", message="it begins with zeros", hint="check the file", adapter="calm"
    )
    failed = member_of(
        report("a", told=MODEL.assignment, phase="failed", serves="m", issues=(issue,)), None
    )
    failures = Failures()
    failures.failed(failed, is_new=True, now=0.0)
    found = status(failed, member_of(report("b", told=OLD), None), failures=failures)
    assert found.status == "loaded"
    assert [each.adapter for each in found.issues] == ["calm", None]
    assert [(each.code, each.message) for each in found.issues] == [
        ("not_a_gguf", "agent a: it begins with zeros"),
        (
            "roll_stopped",
            "1 agents keep the old model, because agent a could not load the changed model",
        ),
    ]
    assert status(failures=failures).status == "failed"


def test_failures_of_hosts_that_the_model_does_not_need_are_no_issues() -> None:
    issue = Issue(code="too_large", message="it needs 9 GiB")
    failures = Failures()
    failed = report("small", told=MODEL.assignment, phase="failed", issues=(issue,))
    failures.failed(member_of(failed, None), is_new=True, now=0.0)
    serving = member_of(report("large", told=MODEL.assignment), None)
    assert status(serving, failures=failures).issues == ()
    [still] = status(loading("loading", 0.5), failures=failures).issues
    assert still.code == "too_large"
    [wanted] = status(serving, member_of(failed, None), failures=failures).issues
    assert wanted.message == "agent small: it needs 9 GiB"


def test_a_shortage_says_what_is_missing() -> None:
    model = wished("m", labels={"gpu": "yes"}, replicas=2)

    def shortage(
        missing: int, labelled: int, fitting: int, *, forbidden: int = 0, failed: int = 0
    ) -> str | None:
        found = shortage_of(
            model,
            missing,
            failed=failed,
            labelled=labelled,
            allowed=labelled - forbidden,
            needed=9 * GIB,
            fitting=fitting,
            most=4 * GIB,
        )
        return None if found is None else f"{found.code}: {found.message}"

    assert shortage(0, 0, 0) is None
    assert shortage(2, 0, 0) == (
        "no_agent: no agent with the labels gpu=yes that takes models is connected yet"
    )
    assert shortage(2, 3, 0) == (
        "too_large: the model needs 9.0 GiB; the largest agent with the labels gpu=yes has "
        "4.0 GiB, which is 5.0 GiB too little"
    )
    assert shortage(1, 3, 3) == (
        "too_few_agents: one more agent with the labels gpu=yes is needed; none is free"
    )
    assert shortage(2, 3, 3, failed=1) == shortage(1, 3, 3)
    assert shortage(1, 3, 3, failed=1) is None, "it failed, and tries again"
    assert shortage(2, 3, 0, forbidden=3) == (
        "key_forbids: no agent with the labels gpu=yes has an access key that allows 'm'"
    )
    assert shortage(1, 3, 1, forbidden=2) == (
        "too_few_agents: one more agent with the labels gpu=yes is needed; none is free, "
        "and the keys of 2 do not allow it"
    )


def test_members_by_model() -> None:
    member = member_of(report("a", told=OLD), None)
    assert by_model([member, member_of(report("b"), None)]) == {"m": [member]}
