"""What operators may send about one agent."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from ....shared.quantities import Duration
from ....shared.strict import STRICT
from ...api.openapi.bodies import Body

DEFAULT_DRAIN = 30.0
"""Seconds for which requests may go on when an operator reloads an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDrain:
    """What still runs after `deadline` ends with an error; `null`: it may take its time."""

    __pydantic_config__ = STRICT
    deadline: Annotated[Duration, Field(ge=0)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReload:
    """Running requests may go on for `deadline`."""

    __pydantic_config__ = STRICT
    deadline: Annotated[Duration, Field(ge=0)] = DEFAULT_DRAIN


DRAIN: TypeAdapter[AgentDrain] = TypeAdapter(AgentDrain)
RELOAD: TypeAdapter[AgentReload] = TypeAdapter(AgentReload)

DRAIN_BODY = Body(name="AgentDrain", adapter=DRAIN, takes_nulls=False)
RELOAD_BODY = Body(name="AgentReload", adapter=RELOAD, takes_nulls=False)
