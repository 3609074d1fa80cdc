"""The protocol of supervisor and engine process: JSON, one message a line.

The supervisor writes orders to the engine process's standard input, `Begin` first; the engine
process writes reports to its standard output. The end of the orders means that the supervisor is
gone, for whatever reason, and the engine process must end at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.reports.model_info import ModelInfo
from ...shared.strict import STRICT
from ..settings import AgentSettings

# ---- orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Load the model. All engine processes of an agent have the same `agent_id`."""

    __pydantic_config__ = STRICT
    type: Literal["begin"] = "begin"
    agent_id: AgentId
    settings: AgentSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Send these issues to balancers from now on. The first `Tell` also means: dial them."""

    __pydantic_config__ = STRICT
    type: Literal["tell"] = "tell"
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Finish running requests, then exit."""

    __pydantic_config__ = STRICT
    type: Literal["stop"] = "stop"


# ---- reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The model is loaded; the engine process waits for `Tell` before it dials any balancer."""

    __pydantic_config__ = STRICT
    type: Literal["loaded"] = "loaded"
    model: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A balancer has let the agent in; `model` is the model's name."""

    __pydantic_config__ = STRICT
    type: Literal["ready"] = "ready"
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The last report: why the process cannot go on, in one line."""

    __pydantic_config__ = STRICT
    type: Literal["failed"] = "failed"
    reason: str


Order = Annotated[Begin | Tell | Stop, Field(discriminator="type")]
Report = Annotated[Loaded | Ready | Failed, Field(discriminator="type")]

_order: TypeAdapter[Order] = TypeAdapter(Order)
_report: TypeAdapter[Report] = TypeAdapter(Report)


def encode_order(order: Order) -> bytes:
    """`order` as one line."""
    return _order.dump_json(order) + b"\n"


def encode_report(report: Report) -> bytes:
    """`report` as one line."""
    return _report.dump_json(report) + b"\n"


def decode_order(line: bytes) -> Order:
    """The order in `line`. Raises `pydantic.ValidationError`."""
    return _order.validate_json(line)


def decode_report(line: bytes) -> Report:
    """The report in `line`. Raises `pydantic.ValidationError`."""
    return _report.validate_json(line)


class SupervisorChannel:
    """The engine process's end: its agent id, the issues to send, and where to report.

    `issues` holds those of each `Tell` that was not handled yet.
    """

    def __init__(self, agent_id: AgentId, report: Callable[[Report], None]) -> None:
        self.agent_id = agent_id
        self.report = report
        self.issues: asyncio.Queue[tuple[Issue, ...]] = asyncio.Queue()
