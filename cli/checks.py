"""The checks of `arriero doctor`: each looks at facts and says what to do."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..client.errors import ArrieroError, RequestFailed, Unreachable, Untrusted
from .output import duration, namesakes

Verdict = Literal["good", "warning", "bad"]

MIN_FILES = 4096
MIN_MEMORY = 2 * 2**30
MAX_CLOCK_DIFFERENCE = 5.0
"""Maximum difference of clocks in seconds. No function needs equal clocks, but operators compare
logs.
"""


MIN_CERTIFICATE = 14 * 86400.0
"""Minimum seconds of validity. If a certificate is valid for less, a renewal has failed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check; `advice` says what to do about it."""

    verdict: Verdict
    what: str
    advice: str = ""


def of_fleet(
    readiness: dict[str, Any], agents: list[dict[str, Any]], version: str, management: str
) -> list[Finding]:
    """Check the connected agents, their versions and issues.

    `management` is the address to which agents connect.
    """
    findings = []
    slots = readiness["slots"]
    if not agents:
        # http becomes ws, and https wss
        advice = (
            f"start one: arriero agent --balancer ws{management.removeprefix('http')}; it serves "
            "the fleet's models (arriero models), or with --model FILE only that file"
        )
        findings.append(Finding("bad", "no agent is connected", advice))
    elif not slots["total"]:
        findings.append(Finding("bad", "no agent has a slot", _slot_advice(agents)))
    else:
        number = "1 agent" if len(agents) == 1 else f"{len(agents)} agents"
        words = f"{number}, {slots['busy']} of {slots['total']} slots busy"
        findings.append(Finding("good", words))
    for agent in agents:
        findings += _of_agent(agent, version)
    advice = "give each a --name of its own: the diary and the list of hosts use the names"
    findings += [Finding("warning", words, advice) for words in namesakes(agents)]
    return findings


def _slot_advice(agents: list[dict[str, Any]]) -> str:
    if any(agent.get("issues") for agent in agents):
        return "see their issues below"
    if any(agent.get("state") == "loading" for agent in agents):
        return "wait until they have loaded: arriero models"
    if any(agent.get("state") == "idle" for agent in agents):
        return "give them a model: arriero models add SOURCE"
    return "see their states: arriero agents"


MOST_FAILING = 0.05
"""The share of failed requests from which the check fails."""

_FAILURES = {
    "queue_full": "add slots or agents, or raise --max-buffered-requests: arriero status",
    "queue_timeout": "add slots or agents, or raise --buffered-request-timeout: arriero status",
    "first_token_timeout": "see the agents' logs, or raise --first-token-timeout",
    "token_timeout": "see the agents' logs, or raise --token-timeout",
    "agent_lost": "see why agents leave: arriero diary",
    "engine_failed": "see the agents' logs",
    "internal_error": "see the balancer's log, and report the error",
    "model_failed": "see why the model cannot be loaded: arriero models",
    "overloaded": "clients send more than the balancer may hold: see arriero_pool_refusals_total",
}
"""Errors of requests that an operator can act on, with the advice."""


def of_requests(ended: Mapping[str, Iterable[int]]) -> Iterator[Finding]:
    """Check the requests of the last 15 minutes; `ended` counts them by their end."""
    counts = {code: sum(numbers) for code, numbers in ended.items()}
    total = sum(counts.values())
    failed = {code: number for code, number in counts.items() if number and code in _FAILURES}
    if not total or sum(failed.values()) < MOST_FAILING * total:
        return
    most = max(failed, key=lambda code: failed[code])
    listed = ", ".join(f"{number} {code}" for code, number in sorted(failed.items()))
    words = f"{sum(failed.values())} of {total} requests of the last 15 minutes failed: {listed}"
    yield Finding("bad", words, _FAILURES[most])


def of_issues(name: str, of: dict[str, Any]) -> list[Finding]:
    """Return the issues of an agent, or of the balancer itself."""
    return [
        Finding("bad", f"{name}: {issue['message']}", issue.get("hint", ""))
        for issue in of.get("issues") or ()
    ]


def _of_agent(agent: dict[str, Any], version: str) -> list[Finding]:
    name = agent["name"]
    findings = []
    if agent["version"] != version:
        words = f"{name} runs version {agent['version']}, this is {version}"
        findings.append(Finding("warning", words, "upgrade the older one"))
    model = agent.get("model") or {}
    if model.get("kernels") == "plain":
        advice = "for AMX, build llama.cpp with -fno-dse: see docs/engine.md"
        findings.append(Finding("warning", f"{name} computes with plain kernels", advice))
    return findings + of_issues(name, agent)


def of_hosts(hosts: Iterable[Mapping[str, Any]], now: float) -> list[Finding]:
    """Report hosts whose connection was lost. Hosts that were stopped or drained are not
    reported.
    """
    return [
        Finding(
            "bad",
            f"{host['name']} is lost: it was last seen "
            f"{duration(max(0.0, now - host['last_seen']))} ago",
            "start its agent again, or if the host is gone for good: "
            f"arriero agents forget {host['name']}",
        )
        for host in hosts
        if host["state"] == "lost"
    ]


def of_models(models: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Report models that no agent serves although they are desired or requested, and issues."""
    return [finding for model in models for finding in _of_model(model)]


def _of_model(model: Mapping[str, Any]) -> Iterator[Finding]:
    name, issues = model["name"], model["issues"]
    if model["status"] in ("loaded", "loading"):
        for issue in issues:
            yield Finding("warning", f"{name}: {issue['message']}", issue.get("hint") or "")
    elif issues:
        words = f"no agent serves {name}: {issues[0]['message']}"
        yield Finding("bad", words, issues[0].get("hint") or "")
    elif waiting := model["waiting"]:
        who = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
        yield Finding("bad", f"no agent serves {name}, and {who} for it", "arriero models")


def of_refusal(error: ArrieroError, flag: str) -> Finding:
    """Report an address that did not answer as expected; `flag` sets the address."""
    if isinstance(error, Untrusted):
        return Finding("bad", str(error))
    if isinstance(error, Unreachable):
        return Finding("bad", str(error), f"start the balancer, or give its address with {flag}")
    code = error.code if isinstance(error, RequestFailed) else ""
    return Finding("bad", str(error), _ADVICE.get(code, ""))


_ADVICE = {
    "unauthorized": "give a valid key with --key-file or ARRIERO_KEY; "
    "an admin makes one with arriero keys create",
    "forbidden": "use a key of the role viewer, operator or admin",
}


def of_clock(difference: float) -> Finding:
    """Check the difference between this host's clock and the balancer's, in seconds."""
    if abs(difference) <= MAX_CLOCK_DIFFERENCE:
        return Finding("good", "the clock agrees with the balancer's")
    words = f"the clock differs from the balancer's by {difference:+.0f} s"
    return Finding("warning", words, "run a time service on both hosts")


def of_certificate(address: str, seconds_left: float) -> Finding:
    """Check how long the certificate at `address` is still valid. Its name was checked earlier."""
    days = int(seconds_left // 86400)
    words = f"the certificate at {address} matches its name and is valid for {days} more days"
    if seconds_left > MIN_CERTIFICATE:
        return Finding("good", words)
    return Finding("warning", words, "renew it: the balancer takes new files without a restart")


def of_files(limit: int) -> Finding:
    """Check how many files a daemon that is started here may open."""
    if limit >= MIN_FILES:
        return Finding("good", f"{limit} open files are allowed")
    words = f"only {limit} open files are allowed, one for each client and agent"
    return Finding("warning", words, f"ulimit -n {MIN_FILES}, or LimitNOFILE= of systemd")


def of_memory(free: int | None) -> Finding:
    """Check the bytes of memory that are free here; `None` if unknown."""
    if free is None:
        return Finding("warning", "this system does not report its free memory")
    words = f"{free / 2**30:.1f} GiB of memory are free"
    if free >= MIN_MEMORY:
        return Finding("good", words)
    return Finding("warning", words, "an agent needs room for weights and KV cache")


def of_engine(is_installed: bool, found: Mapping[str, Any] | None) -> list[Finding]:
    """Check whether an agent can run here, and on which devices.

    `found` is `None` if llama.cpp failed to list the devices.
    """
    if not is_installed:
        words = "llama.cpp is not installed: this host can run a balancer, but no models"
        return [Finding("good", words)]
    if found is None:
        words = "llama.cpp is installed, but fails to list the GPUs"
        return [Finding("bad", words, "check the driver, or use no GPUs with --device none")]
    variant = f", with kernels for {found['cpu']}" if found["cpu"] else ""
    listed = "; ".join(map(_of_device, found["devices"]))
    devices = f"has the devices (--device) {listed}" if listed else "finds no GPU"
    return [
        Finding("good", f"llama.cpp is installed{variant}, and {devices}"),
        *(Finding("bad", each["message"], each["hint"]) for each in found["problems"]),
    ]


def _of_device(device: Mapping[str, Any]) -> str:
    free, memory = device["free"] / 2**30, device["memory"] / 2**30
    return f"{device['name']} ({device['description']}, {free:.1f} of {memory:.1f} GiB free)"
