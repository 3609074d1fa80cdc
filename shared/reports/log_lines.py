"""The latest lines of an agent's log, as they are shown to operators."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..strict import STRICT, ListOf

MAX_LINES = 200
"""Lines that an agent keeps to be asked for."""

MAX_LINE = 1000
"""Most characters of a line; of longer ones the beginning and the end are kept."""

LATEST = 253_402_300_799.0
"""The end of the year 9999, the last that Python has dates of."""

LogLevel = Literal["info", "warning", "error"]
LogNumber = Annotated[int, Field(ge=0, lt=2**53)]
"""The number of a line, small enough for JavaScript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`number` grows from line to line, also when the process is a new one. `at` is in seconds
    since 1970, by the agent's clock."""

    __pydantic_config__ = STRICT
    number: LogNumber
    at: Annotated[float, Field(ge=0, le=LATEST)]
    level: LogLevel
    text: Annotated[str, Field(max_length=2 * MAX_LINE)]


LogLines = Annotated[ListOf[LogLine], Field(max_length=MAX_LINES)]
