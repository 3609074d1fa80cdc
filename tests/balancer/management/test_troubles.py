"""What is wrong has a line that says so, and where nothing is wrong there is none."""

from collections.abc import Sequence

import pytest

from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.model_status import ModelStatus
from arriero.balancer.fleet.view import ModelStatus as Status
from arriero.balancer.fleet.view import ModelView
from arriero.balancer.management import troubles
from arriero.balancer.management.answer_types import Trouble
from arriero.shared.messages import Issue
from tests.balancer.fleet.builders import model_info

GONE = Issue(code="no_file", message="agent a: no such file", hint="bring it back")
OTHER = Issue(code="no_file", message="agent b: no such file")


def view(name: str, status: Status, *issues: Issue) -> ModelView:
    return ModelView(info=model_info(name), status=status, issues=issues)


def lines(found: Sequence[ModelView], waiting: Sequence[str] = ()) -> list[Trouble]:
    return [*troubles.of_models(found, {}, dict.fromkeys(waiting))]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (view("m", "failed", GONE, OTHER), "has failed: agent a: no such file (and 1 more)"),
        (view("m", "waiting", GONE), "is waiting: agent a: no such file"),
        (view("m", "loaded", GONE), "is loaded: agent a: no such file"),
    ],
)
def test_a_model_with_issues(model: ModelView, message: str) -> None:
    [line] = lines([model])
    assert (line["name"], line["message"], line["hint"]) == ("m", message, GONE.hint)


def test_a_model_that_nobody_serves_is_missed_only_if_requests_wait() -> None:
    found = [view("a", "unloaded"), view("b", "unloaded"), view("c", "loaded")]
    [line] = lines(found, ["b", "c"])
    assert line["name"] == "b"


def test_an_adapter_is_as_its_model() -> None:
    status = ModelStatus(model=DesiredModel(name="m", source="/m.gguf"), status="failed")
    both = [view("m", "failed", GONE), view("m:a", "failed", GONE)]
    adapters = {"m:a": status}
    assert [each["name"] for each in troubles.of_models(both, adapters, {})] == ["m"]
    assert [each["name"] for each in troubles.of_models(both[1:], adapters, {})] == ["m:a"]


def test_many_models_share_a_line() -> None:
    found = lines([view(f"m{number:02}", "failed", GONE) for number in range(20)])
    assert len(found) == troubles.MAX_MODELS + 1
    assert (found[-1]["name"], found[-1]["num"]) == (None, 20 - troubles.MAX_MODELS)
    assert found[-1]["message"] == "m08, m09, m10, m11, m12 and 7 more"


def test_hosts_balancer_and_refusals() -> None:
    assert [*troubles.of_hosts([])] == []
    [hosts] = troubles.of_hosts(["a", "b"])
    assert (hosts["num"], hosts["message"]) == (2, "a, b")
    [store] = troubles.of_balancer([Issue(code="store_away", message="the store is away")])
    assert (store["name"], store["message"]) == ("store_away", "the store is away")
    why = "at the agents' socket: the access key is not known here"
    [refused] = troubles.of_refusals({"agents": (["10.0.0.7"], why)})
    assert refused["message"] == f"10.0.0.7, {why}"
