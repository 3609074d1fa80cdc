"""Issues of agents whose protocol has no field for the adapter: the message says which one."""

import re
from collections.abc import Iterable
from dataclasses import replace

from ...shared.messages import Issue

_NAMED = re.compile(r"adapter `([A-Za-z0-9_][A-Za-z0-9._-]{0,63})`: ")


def with_adapters(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """The issues, with the adapters that their messages are about."""
    return tuple(map(_with_adapter, issues))


def _with_adapter(issue: Issue) -> Issue:
    named = _NAMED.match(issue.message)
    return replace(issue, adapter=named[1]) if named else issue
