"""The filter of `GET /api/v1/requests`: `state`, `model`, `caller` and `limit`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Self, get_args

from ...shared.errors import InvalidRequest
from ..fleet.view import RequestState, RequestView
from .parameters import check_names, number

DEFAULT_LIMIT = 200
MAX_LIMIT = 1000

STATES: Mapping[str, frozenset[str]] = {
    **{state: frozenset([state]) for state in get_args(RequestState)},
    "running": frozenset(["assigned", "streaming"]),
}
"""Values of the filter `state`, each with the states of requests that match."""

NAMES = ("state", "model", "caller", "limit")


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """A filter for requests. A field that is `None` accepts all requests."""

    states: frozenset[str] | None = None
    model: str | None = None
    caller: str | None = None
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Return the filter in a URL's parameters.

        Raises `InvalidRequest`, which names the parameter.
        """
        check_names(query, NAMES)
        state = query.get("state")
        if state is not None and state not in STATES:
            raise InvalidRequest(
                f"`state` must be one of {', '.join(sorted(STATES))} or ended, not {state[:100]!r}",
                field="state",
            )
        limit = number("limit", query.get("limit", str(DEFAULT_LIMIT)), 1, MAX_LIMIT)
        return cls(
            states=None if state is None else STATES[state],
            model=query.get("model"),
            caller=query.get("caller"),
            limit=limit,
        )

    def choose(self, requests: Iterable[RequestView]) -> Iterator[RequestView]:
        """Yield the first `limit` requests that match."""
        return islice(filter(self._fits, requests), self.limit)

    def _fits(self, request: RequestView) -> bool:
        return (
            (self.states is None or request.state in self.states)
            and self.model in (None, request.model)
            and self.caller in (None, request.caller)
        )
