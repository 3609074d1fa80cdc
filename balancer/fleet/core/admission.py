"""Admission of requests, within the abilities of the fleet and the limits of the caller.

A new request is refused for the first of these reasons: the balancer shuts down, no model can
serve the request, its caller's limits are used up, or the memory of requests is. A full queue
refuses it afterwards. Only accepted requests count against limits and use memory, until they end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ....shared.errors import (
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    RateLimited,
    RequestError,
    ShuttingDown,
)
from ....shared.inference import (
    PRIORITY_NUMBERS,
    GenerateRequest,
    PriorityClass,
    RequestId,
    Usage,
)
from ....shared.inference.abilities import Ability, field_of
from ....shared.inference.adapters import AdapterChoice, adapted_name
from ...access.identity import CallerLimits
from ..caller import Account, Caller
from ..footprint import footprint, memory_refusal
from ..queries.query import QueryRequest
from ..shares import Shares
from ..token_estimate import Reservation, reservation_of, reservation_of_queries
from ..view import Standing
from .limiter import SOON, Grant, Limiter
from .state import FleetState

AnyRequest = TypeVar("AnyRequest", GenerateRequest, QueryRequest)

UNCOUNTED = Reservation()

_MOST_PRIORITY: dict[PriorityClass, int] = {"batch": -1, "default": 0, "interactive": 100}
"""The highest `priority` of a request: numbers above 0 are interactive, numbers below 0 batch."""

_MAX_NAMES = 10


@dataclass(frozen=True, slots=True)
class Newcomer(Generic[AnyRequest]):
    """The result of checking a new request: accepted, or refused with an `error`.

    In an accepted `request`, an alias is replaced by the model's own name, and the caller's limits
    on tokens and priority are applied. The request uses `reservation` of the caller's rate limits
    and `num_bytes` of the memory for requests.
    """

    request: AnyRequest
    error: RequestError | None = None
    reservation: Reservation = UNCOUNTED
    num_bytes: int = 0


class Admission:
    """Checks new requests.

    Ask `request` or `query`; then report which requests were `admitted`, and when each has
    `ended`.
    """

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self._limiter = Limiter(keys=state.limits.keys, anonymous=state.limits.anonymous)
        self.memory: Shares[Account] = Shares(state.limits.request_memory)
        """The bytes of the requests and queries that were accepted and have not ended."""
        self._grants: dict[RequestId, Grant] = {}
        """The grants of these requests by id.

        Each grant is given back even after an internal error.
        """

    @property
    def num_accounts(self) -> int:
        """The number of callers whose limits are counted."""
        return self._limiter.num_accounts

    def shared_by(self, num_balancers: int) -> None:
        """Give callers this balancer's share of their limits.

        `num_balancers` are live, including this one.
        """
        self._limiter.num_balancers = num_balancers

    def standing(self, caller: Caller, now: float) -> Standing:
        """Return how much of a caller's limits is left."""
        return self._limiter.standing(caller, now)

    def models_of(self, caller: Caller) -> frozenset[str]:
        """Return the names of the models that the caller may use; empty if it may use all."""
        resolve = self._state.models.resolve
        names = self._limiter.limits_of(caller).models or ()
        return frozenset(resolve(name) or name for name in names)

    def priority(self, request: GenerateRequest, caller: Caller) -> int | None:
        """Return the priority that a request of the caller gets."""
        return priority_within(request.priority, self._limiter.limits_of(caller))

    def request(
        self, request: GenerateRequest, caller: Caller, now: float, *, together: int = 1
    ) -> Newcomer[GenerateRequest]:
        """Check a new request. The call has `together` such requests, of which it is the first."""
        limits = self._limiter.limits_of(caller)
        request, error = self._named(self._with_senses(request), limits)
        if error is None:
            error = hidden(self._refusal(request, now), request.model, limits)
        if error is not None:
            return Newcomer(request, error)
        within = bounded(request, limits)
        if isinstance(within, RequestError):
            return Newcomer(request, within)
        reservation = self._reservation(within, limits)
        all_of_them = reservation if together == 1 else replace(reservation, num_copies=together)
        over = self._over(within, caller, limits, all_of_them, now)
        return self._within_memory(within, over, reservation, caller)

    def query(
        self, query_request: QueryRequest, caller: Caller, now: float
    ) -> Newcomer[QueryRequest]:
        """Check a new query."""
        limits = self._limiter.limits_of(caller)
        query_request, error = self._named(query_request, limits)
        if error is None:
            error = hidden(self._refusal_of_query(query_request, now), query_request.model, limits)
        if error is not None:
            return Newcomer(query_request, error)
        reservation = reservation_of_queries(query_request.parts)
        over = self._over(query_request, caller, limits, reservation, now)
        return self._within_memory(query_request, over, reservation, caller)

    def named(self, request: GenerateRequest, caller: Caller) -> GenerateRequest:
        """Return a request that was accepted earlier, with the present name of its model."""
        named, _error = self._named(request, self._limiter.limits_of(caller))
        return named

    def admitted(self, id: RequestId, newcomer: Newcomer[AnyRequest], now: float) -> None:
        """Count a new request that was accepted."""
        request = self._state.lives.get(id)
        if request is None:
            raise ValueError(f"request {id} was not accepted")
        grant = self._grants[id] = Grant(request, newcomer.num_bytes)
        self._limiter.admitted(grant, newcomer.reservation, now)
        self.memory.take(request.account, grant.num_bytes)

    def resumed(self, id: RequestId, request: GenerateRequest, now: float) -> None:
        """Count a request that was accepted earlier, even beyond the limits."""
        self.admitted(id, Newcomer(request, num_bytes=footprint(request)), now)

    def ended(self, id: RequestId, usage: Usage, now: float) -> None:
        """Release a request that has ended; a request that was never accepted is ignored."""
        if (grant := self._grants.pop(id, None)) is not None:
            self._limiter.ended(grant, usage.prompt_tokens + usage.completion_tokens, now)
            self.memory.give_back(grant.request.account, grant.num_bytes)

    # ---- inside

    def _within_memory(
        self,
        request: AnyRequest,
        over: RequestError | None,
        reservation: Reservation,
        caller: Caller,
    ) -> Newcomer[AnyRequest]:
        """Return the request with its size in memory, or refused if memory is used up.

        With `over` set, it is never refused.
        """
        if over is not None:
            return Newcomer(request, over, reservation)
        num_bytes = footprint(request)
        error = memory_refusal(self.memory, caller.account, num_bytes)
        return Newcomer(request, error, reservation, num_bytes)

    def _named(
        self, request: AnyRequest, limits: CallerLimits
    ) -> tuple[AnyRequest, RequestError | None]:
        """Return the request with its model's own name in place of an alias.

        Returns the error if the caller may not use the model.
        """
        resolve = self._state.models.resolve
        name = model_for(request.model, limits, resolve)
        if isinstance(name, RequestError):
            return request, name
        if isinstance(request, GenerateRequest) and request.adapters == ():
            request, name = replace(request, adapters=None), self._state.models.base_of(name)
        elif isinstance(request, GenerateRequest) and request.adapters:
            name = self._adapted(name, request.adapters, limits)
            if isinstance(name, RequestError):
                return request, name
        elif not isinstance(request, GenerateRequest) and request.task is None:
            name = self._state.models.base_of(name)  # an adapter changes no tokens
        return (request if name == request.model else replace(request, model=name)), None

    def _adapted(
        self, model: str | None, adapters: Sequence[AdapterChoice], limits: CallerLimits
    ) -> str | RequestError:
        """Return the agents' name of the first of `adapters`.

        The caller must be allowed to use all of them.
        """
        models = self._state.models
        base = models.base_of(model or models.name_for("generate"))
        names = [adapted_name(base or "", each.name) for each in adapters]
        for place, name in enumerate(names):
            if models.get(name) is None:
                field = f"adapters[{place}].name"
                wrong = (
                    f"no agent serves the model `{base}` with the adapter `{adapters[place].name}`"
                )
                return InvalidRequest(f"`{field}`: {wrong}", field=field)
            if (left_out := models.left_out(name)) is not None:
                return left_out
            if isinstance(refused := model_for(name, limits, models.resolve), RequestError):
                return refused
        return names[0]

    def _refusal(self, request: GenerateRequest, now: float) -> RequestError | None:
        if self._state.is_draining:
            return _going_down()
        refusal = self._state.models.refusal("generate", request.model)
        refusal = refusal or self._senseless(request, request.model)
        models = self._state.models
        refusal = refusal or models.unable(request) or models.too_long(request)
        return refusal or models.failed(request.model, now)

    def _with_senses(self, request: GenerateRequest) -> GenerateRequest:
        """Add a model to a request that has media and no model name.

        The model accepts the media. Returns other requests unchanged.
        """
        if request.model is not None or not (senses := request.senses):
            return request
        return replace(request, model=self._state.models.name_for(senses[0]) or None)

    def _refusal_of_query(self, query_request: QueryRequest, now: float) -> RequestError | None:
        if self._state.is_draining:
            return _going_down()
        if (counted := query_request.first_with_media) is not None:
            refusal = self._senseless(counted, query_request.model)
        else:
            refusal = self._state.models.refusal(query_request.task, query_request.model)
        if refusal is None and query_request.kind == "text":
            refusal = self._no_tokenizer(query_request)
        return refusal or self._state.models.failed(query_request.model, now)

    def _senseless(self, request: GenerateRequest, model: str | None) -> RequestError | None:
        """Return the error for the first picture or sound that no agent of the model accepts."""
        refusals = (
            self._state.models.refusal(sense, model, field=field_of(request, sense))
            for sense in request.senses
        )
        return next(filter(None, refusals), None)

    def _no_tokenizer(self, query_request: QueryRequest) -> NotSupported | None:
        also: frozenset[Ability] = frozenset(query_request.senses)
        if self._state.models.can_tokenize(query_request.model, also=also):
            return None
        return NotSupported("the model's upstream server cannot tokenise texts for clients")

    def _reservation(self, request: GenerateRequest, limits: CallerLimits) -> Reservation:
        """Return the reservation of the request.

        Its tokens are estimated only if tokens are limited, because an estimate reads the whole
        prompt.
        """
        if limits.tokens_per_minute is None:
            return UNCOUNTED
        return reservation_of(request, self._state.models.room(request.model).num_tokens + 1)

    def _over(
        self,
        request: GenerateRequest | QueryRequest,
        caller: Caller,
        limits: CallerLimits,
        reservation: Reservation,
        now: float,
    ) -> RequestError | None:
        error = self._limiter.refusal(caller, limits, reservation, now)
        if error is not None or limits.max_queued is None:
            return error
        live = self._limiter.live(caller)
        num_waiting = sum(grant.request.is_waiting for grant in live)
        if num_waiting < limits.max_queued or self._starts_at_once(request):
            return None
        return RateLimited(
            f"{limits.max_queued} of your requests are waiting, which is the limit; "
            "try again when one has started",
            retry_after=SOON,
        )

    def _starts_at_once(self, request: GenerateRequest | QueryRequest) -> bool:
        if isinstance(request, GenerateRequest):
            return self._state.requests.dispatch.has_free_slot(request.model)
        return self._state.dispatcher.has_room(request)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._limiter.check_integrity()
        self.memory.check_integrity()
        if self.memory.total != sum(grant.num_bytes for grant in self._grants.values()):
            raise RuntimeError("the memory of requests is miscounted")
        if not all(each.id in self._grants for each in self._state.lives):
            raise RuntimeError("a request takes no memory")


def _going_down() -> ShuttingDown:
    return ShuttingDown("the balancer is shutting down")


# ---- what one request of a caller may ask for: its model, its longest answer, its priority


def model_for(
    model: str | None, limits: CallerLimits, resolve: Callable[[str | None], str | None]
) -> str | RequestError | None:
    """Return the name of the model, as `resolve` gives it, or an error if it may not be used.

    If a caller may use only one model, it need not name the model; otherwise it must.
    """
    if limits.models is None:
        return resolve(model)
    if model is None:
        if len(limits.models) == 1:
            return resolve(limits.models[0])
        return InvalidRequest(
            f"`model` is missing; this caller may use {_listed(limits.models)}", field="model"
        )
    if model in limits.models or resolve(model) in map(resolve, limits.models):
        return resolve(model)
    return ModelNotFound(
        f"this caller may not use the model `{model[:200]}`; it may use {_listed(limits.models)}",
        field="model",
    )


def hidden(
    error: RequestError | None, model: str | None, limits: CallerLimits
) -> RequestError | None:
    """Return `error` without the names of models that the caller may not use."""
    if limits.models is None or model is None or not isinstance(error, ModelNotFound):
        return error
    return ModelNotFound(f"no agent serves the model `{model[:200]}`", field="model")


def bounded(request: GenerateRequest, limits: CallerLimits) -> GenerateRequest | InvalidRequest:
    """Return `request` within `limits`.

    Without `max_tokens` it gets the limit; a higher value is an error.

    Without a priority it gets its caller's default; a higher priority is lowered.
    """
    most = limits.max_tokens
    if most is not None and request.max_tokens is None:
        request = replace(request, max_tokens=most)
    if most is not None and request.max_tokens is not None and request.max_tokens > most:
        return InvalidRequest(
            f"`max_tokens`: must be at most {most} for this caller, not {request.max_tokens}",
            field="max_tokens",
        )
    priority = priority_within(request.priority, limits)
    return request if priority == request.priority else replace(request, priority=priority)


def priority_within(priority: int | None, limits: CallerLimits) -> int | None:
    """Return the priority that a request for `priority` gets; `None` if none is set."""
    if priority is None and limits.default_priority is not None:
        priority = PRIORITY_NUMBERS[limits.default_priority]
    most = _MOST_PRIORITY[limits.priority]
    return most if (priority or 0) > most else priority


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name[:200]}`" for name in names[:_MAX_NAMES])
    return shown + ", …" * (len(names) > _MAX_NAMES)
