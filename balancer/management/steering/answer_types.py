"""What the routes of this room answer, as types; the OpenAPI document is made of them."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from ....shared.inference import AgentId
from ....shared.messages import Issue
from ...control.agent_plan import Action
from ...fleet.view import AgentState, ModelStatus


class Wish(TypedDict):
    """The desired state, in the form of `DesiredState`; durations in seconds, sizes in bytes."""

    models: list[dict[str, Any]]


class AgentStep(TypedDict):
    """What an agent would do, and why. `model` is what it would serve then."""

    agent: AgentId
    name: str
    action: Action
    model: str | None
    why: str


class DryRun(TypedDict):
    """What would change; nothing has."""

    agents: list[AgentStep]


class Model(TypedDict):
    """A model that is wished for or served. `agents` have it, or are about to.

    `progress` is the share of loading that is done, from 0 to 1, where that is known.
    """

    name: str
    aliases: tuple[str, ...]
    status: ModelStatus
    progress: float | None
    agents: list[AgentId]
    issues: tuple[Issue, ...]
    source: NotRequired[str]


class Models(TypedDict):
    """All models, by name."""

    models: list[Model]


class Steered(TypedDict):
    """An agent after what an operator did."""

    id: AgentId
    state: AgentState
