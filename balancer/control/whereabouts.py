"""A model's placement in words: its hosts, and why not other hosts."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Literal

from ...shared.inference import AgentId
from .members import AgentReport, Member

Obstacle = Literal["labels", "key", "version", "memory", "failed", "busy"]
"""Why an agent may not be given a model.

`failed`: its host could not load the model, and tries again later. `busy`: it would have to give
up another model, which is not worth that yet.
"""

_WHY: Mapping[Obstacle, str] = {
    "labels": "without its labels",
    "key": "whose key does not allow it",
    "version": "whose version is too old for a setting of the model",
    "busy": "which would have to unload another model",
}

MOST_NAMED = 3
"""Maximum hosts that are named; further hosts are counted."""

Hosts = Mapping[AgentId, AgentReport]


def placement_in_words(
    chosen: Iterable[Member],
    obstacles: Mapping[AgentId, Obstacle],
    members: Mapping[AgentId, Member],
    *,
    needed: int | None,
    failed_with: Mapping[AgentId, str],
) -> str:
    """Say where a model is or will be, and why not on other hosts.

    `needed` is the model's memory in bytes, if known. `failed_with` is the code of each host's
    failure.
    """
    there = {member.report.host_id: member.report for member in chosen}
    needs = "" if needed is None else f" ({_gib(needed)})"
    said = [f"on {_named(there)}{needs}" if there else f"on no agent{needs}"]
    groups: dict[Obstacle, dict[AgentId, AgentReport]] = {}
    for id, obstacle in obstacles.items():
        report = members[id].report
        if report.host_id not in there:
            groups.setdefault(obstacle, {})[report.host_id] = report
    for obstacle, hosts in groups.items():
        why = _why(obstacle, hosts, needed or 0, failed_with)
        said.append(f"not on {_named(hosts)}, {why}")
    return "; ".join(said)


def _why(obstacle: Obstacle, hosts: Hosts, needed: int, failed_with: Mapping[AgentId, str]) -> str:
    if obstacle == "memory":
        missing = _gib(needed - max(report.memory for report in hosts.values()))
        each = "which has" if len(hosts) == 1 else "each of which has at least"
        return f"{each} {missing} too little"
    if obstacle == "failed":
        codes = dict.fromkeys(failed_with[host] for host in hosts if host in failed_with)
        return f"where it failed ({', '.join(islice(codes, MOST_NAMED))})"
    return _WHY[obstacle]


def _named(hosts: Hosts) -> str:
    shown = [report.name for report in islice(hosts.values(), MOST_NAMED)]
    if (more := len(hosts) - MOST_NAMED) > 0:
        shown.append(f"{more} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
