"""What people send to log in."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from ....shared.strict import STRICT
from ...api.openapi.bodies import Body


@dataclass(frozen=True, slots=True)
class LogIn:
    """An access key."""

    __pydantic_config__ = STRICT
    key: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


LOG_IN: TypeAdapter[LogIn] = TypeAdapter(LogIn)
LOG_IN_BODY = Body(name="LogIn", adapter=LOG_IN)
