from typing import Any

import pytest

from arriero.cli.checks import (
    of_certificate,
    of_clock,
    of_engine,
    of_files,
    of_fleet,
    of_hosts,
    of_issues,
    of_memory,
    of_models,
    of_refusal,
    of_requests,
)
from arriero.client.errors import ArrieroError, RequestFailed, Unreachable, Untrusted

URL = "https://lb:8070"
SLOTS = {"slots": {"total": 4, "busy": 1}}


def agent(**more: Any) -> dict[str, Any]:
    return {"name": "box", "version": "1", "model": {"kernels": "all"}, "issues": []} | more


def test_a_sound_fleet() -> None:
    [finding] = of_fleet(SLOTS, [agent()], "1", URL)
    assert (finding.verdict, finding.what) == ("good", "1 agent, 1 of 4 slots busy")


def test_what_is_wrong_says_what_to_do() -> None:
    [nobody] = of_fleet(SLOTS, [], "1", URL)
    assert nobody.verdict == "bad"
    assert nobody.advice == (
        "start one: arriero agent --balancer wss://lb:8070; it serves the fleet's models "
        "(arriero models), or with --model FILE only that file"
    )
    issue = {"message": "disk full", "hint": "make room"}
    sick = agent(version="0", model={"kernels": "plain"}, issues=[issue])
    empty, old, slow, broken = of_fleet({"slots": {"total": 0, "busy": 0}}, [sick], "1", URL)
    assert [each.verdict for each in (empty, old, slow, broken)] == [
        "bad",
        "warning",
        "warning",
        "bad",
    ]
    assert (broken.what, broken.advice) == ("box: disk full", "make room")
    assert of_issues("box", sick) == [broken]
    assert of_issues("the balancer", {"version": "1"}) == []


def test_agents_of_one_name_are_told() -> None:
    _, finding = of_fleet(SLOTS, [agent(), agent(), agent(name="rack")], "1", URL)
    assert (finding.verdict, finding.what) == ("warning", "2 agents are called box")
    assert "--name" in finding.advice


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"issues": [{"message": "no"}]}, "see their issues below"),
        ({"state": "loading"}, "wait until they have loaded: arriero models"),
        ({"state": "idle"}, "give them a model: arriero models add SOURCE"),
        ({"state": "drained"}, "see their states: arriero agents"),
    ],
)
def test_agents_without_slots(more: dict[str, Any], advice: str) -> None:
    assert (
        of_fleet({"slots": {"total": 0, "busy": 0}}, [agent(**more)], "1", URL)[0].advice == advice
    )


def test_requests_that_failed_lately() -> None:
    ended = {"stop": [3, 5], "queue_full": [4, 2], "client_gone": [9], "agent_lost": [0, 1]}
    [finding] = of_requests(ended)
    assert finding.verdict == "bad"
    assert finding.what == (
        "7 of 24 requests of the last 15 minutes failed: 1 agent_lost, 6 queue_full"
    )
    assert "--max-buffered-requests" in finding.advice
    assert list(of_requests({"stop": [99], "queue_full": [1], "invalid_request": [50]})) == []
    assert list(of_requests({})) == []


def test_hosts_that_are_missed() -> None:
    hosts = [
        {"name": name, "state": name, "last_seen": 100.0}
        for name in ("here", "lost", "stopped", "drained")
    ]
    [lost] = of_hosts(hosts, 300.0)
    assert (lost.verdict, lost.what) == ("bad", "lost is lost: it was last seen 3 m 20 s ago")
    assert "arriero agents forget lost" in lost.advice


def model(status: str, *messages: str, waiting: int = 0) -> dict[str, Any]:
    issues = [{"message": each, "hint": "do that"} for each in messages]
    return {"name": "m", "status": status, "issues": issues, "waiting": waiting}


@pytest.mark.parametrize(
    ("model", "verdict", "what"),
    [
        (model("waiting", "no agent"), "bad", "no agent serves m: no agent"),
        (model("failed", "too large"), "bad", "no agent serves m: too large"),
        (model("loaded", "one more"), "warning", "m: one more"),
        (model("unloaded", waiting=2), "bad", "no agent serves m, and 2 requests wait for it"),
        (model("loaded"), None, None),
        (model("loading", waiting=2), None, None),
        (model("unloaded"), None, None),
    ],
)
def test_models(model: dict[str, Any], verdict: str | None, what: str | None) -> None:
    found = of_models([model])
    assert [(each.verdict, each.what) for each in found] == ([(verdict, what)] if what else [])


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (Unreachable("nobody"), "give its address with --url"),
        (Untrusted("self-signed"), ""),
        (RequestFailed("unauthorized", "revoked"), "--key-file"),
        (RequestFailed("forbidden", "not for agents"), "viewer"),
        (RequestFailed("internal_error", "oh"), ""),
    ],
)
def test_refusals(error: ArrieroError, advice: str) -> None:
    finding = of_refusal(error, "--url")
    assert (finding.verdict, finding.what) == ("bad", str(error))
    assert advice in finding.advice and bool(advice) == bool(finding.advice)


def test_the_host() -> None:
    good = [of_clock(1), of_files(65536), of_memory(2**33)]
    poor = [of_clock(-60), of_files(256), of_memory(2**20), of_memory(None)]
    assert {each.verdict for each in good} == {"good"}
    assert {each.verdict for each in poor} == {"warning"}
    [balancer] = of_engine(False, None)
    assert "run a balancer, but no models" in balancer.what


def test_the_devices() -> None:
    gpu = {"name": "CUDA0", "description": "NVIDIA H100", "memory": 80 * 2**30, "free": 2**30}
    devices = [gpu, gpu | {"name": "CUDA1"}]
    [found] = of_engine(True, {"devices": devices, "cpu": None, "problems": []})
    assert found.verdict == "good"
    assert "CUDA0 (NVIDIA H100, 1.0 of 80.0 GiB free); CUDA1 (" in found.what
    [silent] = of_engine(True, None)
    assert silent.verdict == "bad"


def test_a_gpu_that_is_not_used() -> None:
    problem = {"message": "a GPU that nobody sees", "hint": "build for it", "is_unusable": False}
    good, bad = of_engine(True, {"devices": [], "cpu": "haswell", "problems": [problem]})
    assert good.what == "llama.cpp is installed, with kernels for haswell, and finds no GPU"
    assert (bad.verdict, bad.what, bad.advice) == ("bad", problem["message"], problem["hint"])


@pytest.mark.parametrize(
    ("days", "verdict"), [(90, "good"), (15, "good"), (13.5, "warning"), (0.5, "warning")]
)
def test_a_certificate_that_ends_soon(days: float, verdict: str) -> None:
    finding = of_certificate("https://gpu-box:8061", days * 86400)
    assert finding.verdict == verdict
    assert f"valid for {int(days)} more days" in finding.what
    assert bool(finding.advice) == (verdict == "warning")
