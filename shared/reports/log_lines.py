"""The last lines of an agent's log, as operators see them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..strict import STRICT, ListOf

MAX_LINES = 200
"""Maximum lines that an agent keeps."""

MAX_LINE = 1000
"""Maximum characters of a line; the middle of a longer line is cut."""

LATEST = 253_402_300_799.0
"""The end of the year 9999 in seconds since 1970; Python has no later dates."""

LogLevel = Literal["info", "warning", "error"]
LogNumber = Annotated[int, Field(ge=0, lt=2**53)]
"""The number of a line, which JavaScript keeps exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of the log.

    `number` grows with each line, even after a restart of the process. `at` is in seconds since
    1970 by the agent's clock.
    """

    __pydantic_config__ = STRICT
    number: LogNumber
    at: Annotated[float, Field(ge=0, le=LATEST)]
    level: LogLevel
    text: Annotated[str, Field(max_length=2 * MAX_LINE)]


LogLines = Annotated[ListOf[LogLine], Field(max_length=MAX_LINES)]
