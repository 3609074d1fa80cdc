"""Ids and numbers that requests and events share."""

from typing import Annotated, NewType

from pydantic import Field

RequestId = NewType("RequestId", str)
AgentId = NewType("AgentId", str)

Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]

MAX_TOP_LOGPROBS = 20
