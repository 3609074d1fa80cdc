"""The status of each desired model: loaded, loading, waiting, failed or unloaded, and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.models.assignments import Work
from .desired_state import DesiredModel
from .members import Failure, Member

Status = Literal["loaded", "loading", "waiting", "failed", "unloaded"]

MAX_ISSUES = 20
"""Maximum issues of one model that are shown."""

TOO_OLD = Issue(
    code="agent_too_old",
    message="every agent that may serve the model is too old for one of its settings",
    hint="upgrade the agents, or leave out the newer settings",
)

_WEIGHTS = {"waiting": 0.0, "fetching": 0.0, "draining": 0.5, "loading": 0.5}
"""The share of a load that is complete when each phase begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """The status of a desired model. `loaded`: an agent serves it; `loading`: agents will.

    `waiting`: the model waits for an agent. `unloaded`: the model will be loaded at its next
    request. `progress` is the completed share of the loading, if known. `agents` counts the agents
    that have the model or load it; they are on `hosts`.
    """

    model: DesiredModel
    status: Status
    progress: float | None = None
    agents: tuple[AgentId, ...] = ()
    hosts: tuple[AgentId, ...] = ()
    issues: tuple[Issue, ...] = ()


def status_of(
    model: DesiredModel,
    members: Iterable[Member],
    *,
    is_in_demand: bool,
    failures: Iterable[Failure],
    shortage: Issue | None,
) -> ModelStatus:
    """Return the status of a model; `members` are the agents that count for it."""
    here = list(members)
    failed = [failure for failure in failures if failure.assignment == model.assignment]
    if shortage is None and here and all(_serves(member, model) for member in here):
        failed = []  # of hosts that it does not need
    issues = [*_reported_by(failed, here), *([] if shortage is None else [shortage])]
    loading = [member for member in here if member.is_changing]
    status: Status = "unloaded"
    if any(member.report.serves == model.name for member in here):
        status = "loaded"
    elif loading:
        status = "loading"
    elif failed:
        status = "failed"
    elif is_in_demand:
        status = "waiting"
    return ModelStatus(
        model=model,
        status=status,
        progress=max(map(_progress, loading), default=None) if status == "loading" else None,
        agents=tuple(member.id for member in here),
        hosts=tuple(dict.fromkeys(member.report.host_id for member in here)),
        issues=tuple(issues[:MAX_ISSUES]),
    )


def _serves(member: Member, model: DesiredModel) -> bool:
    """Return whether the agent serves the model with the desired assignment."""
    is_the_model = member.report.serves == model.name and member.assigned == model.assignment
    return is_the_model and not (member.is_changing or member.has_failed)


def _progress(member: Member) -> float:
    work = member.report.work
    return 0.0 if work is None or work.assignment != member.assigned else share_done(work)


def share_done(work: Work) -> float:
    """Return the completed share of fetching and loading at an agent."""
    share = 0.0 if work.progress is None else work.progress
    return _WEIGHTS.get(work.phase, 0.0) + share / 2


def _reported_by(failed: list[Failure], here: list[Member]) -> Iterator[Issue]:
    """Yield the failures that agents report, with a note on agents that wait because of them."""
    for failure in failed:
        for issue in failure.issues or (
            Issue(code="load_failed", message=("could not load the model")),
        ):
            yield Issue(
                code=issue.code,
                message=f"agent {failure.agent_name}: {issue.message}",
                hint=issue.hint,
                adapter=issue.adapter,
            )
    stopping = next((failure for failure in failed if failure.stops_others), None)
    behind = [
        member for member in here if stopping is not None and member.assigned != stopping.assignment
    ]
    if stopping is not None and behind:
        yield Issue(
            code="roll_stopped",
            message=(
                f"{len(behind)} agents keep the old model, because agent {stopping.agent_name} "
                "could not load the changed model"
            ),
            hint="fix the cause and reload that agent, or change the desired state",
        )


def shortage_of(
    model: DesiredModel,
    num_missing: int,
    *,
    failed: int,
    labelled: int,
    allowed: int,
    needed: int | None,
    fitting: int,
    most: int,
) -> Issue | None:
    """Return why `num_missing` of the desired agents could not be found.

    `labelled` agents have the labels. The keys of `allowed` of these allow the model, and
    `fitting` of the allowed agents have the memory `needed`, in bytes. `most` is the memory of the
    largest allowed agent. `failed` agents could not load the model and try again, so they are not
    missing.
    """
    if not num_missing:
        return None
    labels = ", ".join(f"{key}={value}" for key, value in model.agents.labels.items())
    which = f" with the labels {labels}" if labels else ""
    if not labelled:
        return Issue(
            code="no_agent",
            message=f"no agent{which} that takes models is connected yet",
            hint="start an agent without --model" + (f" and with {which[6:]}" if labels else ""),
        )
    if not allowed:
        return Issue(
            code="key_forbids",
            message=f"no agent{which} has an access key that allows {model.name!r}",
            hint=f"give an agent a key of the role agent without models, or with {model.name!r} "
            "among them",
        )
    if not fitting and needed is not None:
        return Issue(
            code="too_large",
            message=(
                f"the model needs {_gib(needed)}; the largest agent{which} has {_gib(most)}, "
                f"which is {_gib(needed - most)} too little"
            ),
            hint="use a smaller model or quantisation, fewer slots or a smaller context_size",
        )
    num_missing -= failed
    if num_missing <= 0:
        return None
    bound = f", and the keys of {labelled - allowed} do not allow it" if labelled > allowed else ""
    missing = (
        f"one more agent{which} is" if num_missing == 1 else f"{num_missing} more agents{which} are"
    )
    return Issue(
        code="too_few_agents",
        message=f"{missing} needed; none is free{bound}",
        hint="start more agents, or set fewer replicas",
    )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def by_model(members: Iterable[Member]) -> Mapping[str, list[Member]]:
    """Return the members that count for each model."""
    found: dict[str, list[Member]] = {}
    for member in members:
        if member.model is not None:
            found.setdefault(member.model, []).append(member)
    return found
