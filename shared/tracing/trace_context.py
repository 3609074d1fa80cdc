"""The header `traceparent` of W3C trace context, which names the parent span of a request.

After https://www.w3.org/TR/trace-context/: `00-<trace id>-<span id>-<flags>`, in lower-case hex.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import StringConstraints

LONGEST = 256
"""Maximum characters of a header; this version has 55, later ones may have more."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 0x01

Traceparent = Annotated[
    str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$", max_length=55)
]
"""The header as our own daemons write it."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span: its trace id and span id, neither of them 0, and whether the trace is recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        """The context as the value of the header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def read_traceparent(header: str | None) -> TraceContext | None:
    """Return the context in `header`; `None` if the header is missing or invalid."""
    if header is None or len(header) > LONGEST or not (found := _FORM.fullmatch(header)):
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return context if context.trace_id and context.span_id else None
