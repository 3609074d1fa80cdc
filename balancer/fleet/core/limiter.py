"""Limits of callers: decides whether a caller may send another request now.

Each key has an account. Callers without a key have one account for each address (for IPv6, each
/64 network, because a host may have a whole network). The tokens that a request may use are held
from its admission to its end. At the end, the used tokens count at that moment, and the other held
tokens are free again.

Invariants: callers without limits have no account; accounts with running requests are never
forgotten. Besides those, at most `MAX_ACCOUNTS` accounts of keys and as many of addresses are
kept. Accounts of addresses never displace accounts of keys. Each request is admitted once and
ended once; the held tokens are the sum over the requests that have not ended.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from ....shared.errors import InvalidRequest, RateLimited, RequestError
from ....shared.inference import PRIORITY_CLASSES
from ...access.identity import NO_LIMITS, CallerLimits
from ..caller import Account, Caller
from ..lifecycle import Lifecycle
from ..token_estimate import Reservation
from ..view import NO_STANDING, Level, Standing

T = TypeVar("T")

MAX_ACCOUNTS = 4096

SOON = 1.0
"""Seconds after which to try again if a running request has to end first."""

SPAN = 60.0
"""Seconds that the window covers."""

GRAIN = 0.1
"""Seconds whose amounts form one entry, which leaves the window together."""


@dataclass(slots=True)
class _Entry:
    first: float
    last: float
    amount: int


class SlidingWindow:
    """The amounts of the last minute, added up. Times never go back.

    `used` is never less than the sum of the last `SPAN` seconds. An amount may count for `GRAIN`
    seconds longer, so that at most `SPAN / GRAIN` entries are kept.
    """

    __slots__ = ("_entries", "_sum")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._sum = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def add(self, amount: int, now: float) -> None:
        """Record that `amount` was used at `now`."""
        self._forget(now)
        if amount == 0:
            return
        self._sum += amount
        if self._entries and now - self._entries[-1].first < GRAIN:
            self._entries[-1].last = now
            self._entries[-1].amount += amount
        else:
            self._entries.append(_Entry(now, now, amount))

    def used(self, now: float) -> int:
        """Return the sum of the window that ends at `now`."""
        self._forget(now)
        return self._sum

    def seconds_until(self, most: int, now: float) -> float:
        """Return the seconds until the window has at most `most`, which must not be negative."""
        left = self.used(now)
        frees_at = now
        for entry in self._entries:
            if left <= most:
                break
            left -= entry.amount
            frees_at = entry.last + SPAN
        return frees_at - now

    def seconds_until_empty(self, now: float) -> float:
        """Return the seconds until the window is empty."""
        return self.seconds_until(0, now)

    def _forget(self, now: float) -> None:
        while self._entries and self._entries[0].last + SPAN <= now:
            self._sum -= self._entries.popleft().amount


@dataclass(slots=True, eq=False)
class Grant:
    """The share of an admitted request until it ends: bytes, and tokens of an `account`."""

    request: Lifecycle
    num_bytes: int = 0
    account: "UsageAccount | None" = None
    num_tokens: int = 0


class UsageAccount:
    """A caller's use in the last minute, and the tokens that its running requests hold.

    Limits are given with each call, because they may change.
    """

    __slots__ = ("_num_held", "_requests", "_tokens", "live")

    def __init__(self) -> None:
        self._requests = SlidingWindow()
        self._tokens = SlidingWindow()
        self._num_held = 0
        self.live: set[Grant] = set()
        """The tokens held by requests that have not ended."""

    def refusal(
        self, limits: CallerLimits, reservation: Reservation, now: float
    ) -> RequestError | None:
        """Return the error if a request would exceed its limits, with the time to wait if known."""
        return (
            _too_many_together(limits, reservation)
            or self._too_many_at_once(limits, reservation)
            or self._too_many_requests(limits, reservation, now)
            or self._too_many_tokens(limits, reservation, now)
        )

    def admitted(
        self, grant: Grant, limits: CallerLimits, reservation: Reservation, now: float
    ) -> None:
        """Hold the tokens that an admitted request may use."""
        self._requests.add(reservation.num_requests, now)
        most = limits.tokens_per_minute
        grant.account = self
        grant.num_tokens = 0 if most is None else min(reservation.num_tokens, most)
        self._num_held += grant.num_tokens
        self.live.add(grant)

    def ended(self, grant: Grant, num_tokens: int, now: float) -> None:
        """Release the tokens that an ended request held; it used `num_tokens` of them."""
        self.live.remove(grant)
        self._num_held -= grant.num_tokens
        self._tokens.add(num_tokens, now)

    def standing(self, limits: CallerLimits, now: float) -> Standing:
        """Return how much of the limits is left."""
        held = self._num_held
        return Standing(
            requests=_level(limits.requests_per_minute, self._requests, 0, now),
            tokens=_level(limits.tokens_per_minute, self._tokens, held, now),
        )

    def _too_many_at_once(
        self, limits: CallerLimits, reservation: Reservation
    ) -> RateLimited | None:
        most = limits.max_concurrent
        if most is None or len(self.live) + reservation.num_copies <= most:
            return None
        return RateLimited(
            f"the limit is {_requests(most)} at once; try again when one has ended",
            retry_after=SOON,
        )

    def _too_many_requests(
        self, limits: CallerLimits, reservation: Reservation, now: float
    ) -> RateLimited | None:
        most = limits.requests_per_minute
        if most is None or not reservation.num_requests:
            return None
        needed = reservation.num_requests * reservation.num_copies
        if self._requests.used(now) + needed <= most:
            return None
        seconds = self._requests.seconds_until(most - needed, now)
        return RateLimited(
            f"the limit of {_requests(most)} a minute is used up; try again in "
            f"{_duration(seconds)}",
            retry_after=seconds,
        )

    def _too_many_tokens(
        self, limits: CallerLimits, reservation: Reservation, now: float
    ) -> RequestError | None:
        most = limits.tokens_per_minute
        if most is None or not reservation.num_tokens:
            return None
        if (error := _never_fits(most, reservation)) is not None:
            return error
        needed = min(reservation.num_tokens * reservation.num_copies, most)
        room = most - self._num_held - needed
        if self._tokens.used(now) <= room:
            return None
        seconds = SOON if room < 0 else self._tokens.seconds_until(room, now)
        left = max(0, room + needed - self._tokens.used(now))
        return RateLimited(
            f"the limit is {most} tokens a minute, and {left} of them are left; this "
            f"request may need {needed}. Try again in {_duration(seconds)}",
            retry_after=seconds,
        )

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if self._num_held != sum(grant.num_tokens for grant in self.live):
            raise RuntimeError("what requests hold is miscounted")
        if any(grant.account is not self for grant in self.live):
            raise RuntimeError("a request holds tokens of another account")


def _too_many_together(limits: CallerLimits, reservation: Reservation) -> InvalidRequest | None:
    """Return the error for a call with more requests than its limits ever allow at once."""
    num = reservation.num_copies
    for most, what in (
        (limits.max_concurrent, "at once"),
        (limits.requests_per_minute, "a minute"),
    ):
        if most is not None and num > max(most, 1):
            return InvalidRequest(
                f"the call has {num} prompts or choices, each of which counts as a "
                f"request, and the limit is {_requests(most)} {what}; ask for at most "
                f"{most} at a time"
            )
    return None


def _never_fits(most: int, reservation: Reservation) -> InvalidRequest | None:
    """Return the error for a request that its limits never allow.

    Without `max_tokens` only the prompt must fit.
    """
    prompt = reservation.num_prompt_tokens
    if prompt >= most:
        return InvalidRequest(
            f"the prompt has about {prompt} tokens, and the limit is {most} tokens a minute "
            "for prompt and answer together"
        )
    if reservation.num_copies > 1 and prompt * reservation.num_copies >= most:
        return InvalidRequest(
            f"the call has {reservation.num_copies} prompts of about {prompt} tokens, and "
            f"the limit is {most} tokens a minute; send fewer prompts at a time"
        )
    if reservation.has_max_tokens and reservation.num_tokens * reservation.num_copies > most:
        return InvalidRequest(
            f"`max_tokens`: the limit is {most} tokens a minute, and the prompt has about "
            f"{prompt} tokens; ask for at most {most // reservation.num_copies - prompt}",
            field="max_tokens",
        )
    return None


def _level(limit: int | None, window: SlidingWindow, held: int, now: float) -> Level | None:
    if limit is None:
        return None
    return Level(limit, max(0, limit - held - window.used(now)), window.seconds_until_empty(now))


def _requests(number: int) -> str:
    return f"{number} request{'s' * (number != 1)}"


def _duration(seconds: float) -> str:
    return f"{max(seconds, 0.1):.1f} s"


class Limiter:
    """The accounts of all callers. Times are in seconds and never go back."""

    def __init__(
        self, *, keys: CallerLimits = NO_LIMITS, anonymous: CallerLimits = NO_LIMITS
    ) -> None:
        """Make the accounts. `keys` are the limits of keys without limits of their own.

        `anonymous` are the limits of callers without a key.
        """
        self._keys = keys
        self._anonymous = anonymous
        self._accounts: tuple[OrderedDict[Account, UsageAccount], ...] = (
            OrderedDict(),
            OrderedDict(),
        )
        self.num_balancers = 1
        """The number of balancers that share the callers, including this one.

        If its key has no limits, the defaults apply.
        """

    @property
    def num_accounts(self) -> int:
        """The number of callers with an account."""
        return sum(map(len, self._accounts))

    def limits_of(self, caller: Caller) -> CallerLimits:
        """Return this balancer's share of the caller's limits.

        If the caller's key has no limits, the default limits apply.
        """
        defaults = self._anonymous if caller.is_anonymous else self._keys
        return share_of(joined(caller.limits, defaults), self.num_balancers)

    def refusal(
        self, caller: Caller, limits: CallerLimits, reservation: Reservation, now: float
    ) -> RequestError | None:
        """Return why `caller` may not send this now; `None` if it may: then call `admitted`."""
        if not _is_counted(limits):
            return None
        account = self._find(caller)
        return (account or UsageAccount()).refusal(limits, reservation, now)

    def admitted(self, grant: Grant, reservation: Reservation, now: float) -> None:
        """Count an accepted request, if its caller has limits."""
        limits = self.limits_of(grant.request.caller)
        if _is_counted(limits):
            account = self._open(grant.request.caller)
            account.admitted(grant, limits, reservation, now)

    def ended(self, grant: Grant, num_tokens: int, now: float) -> None:
        """Record that a request has ended, which used `num_tokens`."""
        if grant.account is not None:
            grant.account.ended(grant, num_tokens, now)

    def live(self, caller: Caller) -> Collection[Grant]:
        """Return the grants of the caller's running requests, if the caller has limits."""
        account = self._find(caller)
        return () if account is None else account.live

    def standing(self, caller: Caller, now: float) -> Standing:
        """Return how much of the caller's limits is left."""
        limits = self.limits_of(caller)
        if limits.requests_per_minute is None and limits.tokens_per_minute is None:
            return NO_STANDING
        return (self._find(caller) or UsageAccount()).standing(limits, now)

    def _find(self, caller: Caller) -> UsageAccount | None:
        return self._accounts[caller.is_anonymous].get(caller.account)

    def _open(self, caller: Caller) -> UsageAccount:
        accounts, key = self._accounts[caller.is_anonymous], caller.account
        account = accounts.get(key)
        if account is None:
            if len(accounts) >= MAX_ACCOUNTS:
                _forget_one(accounts)
            account = accounts[key] = UsageAccount()
        accounts.move_to_end(key)
        return account

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        for account in (each for kind in self._accounts for each in kind.values()):
            account.check_integrity()


def _forget_one(accounts: OrderedDict[Account, UsageAccount]) -> None:
    """Forget the least recently used account without running requests, if any."""
    idle = next((key for key, account in accounts.items() if not account.live), None)
    if idle is not None:
        del accounts[idle]


def _is_counted(limits: CallerLimits) -> bool:
    return not (
        limits.requests_per_minute is None
        and limits.tokens_per_minute is None
        and limits.max_concurrent is None
        and limits.max_queued is None
    )


def joined(own: CallerLimits, defaults: CallerLimits) -> CallerLimits:
    """Return `own`, with `defaults` for unset limits; of two priorities the lower."""
    if defaults is NO_LIMITS:
        return own
    if own is NO_LIMITS:
        return defaults
    return CallerLimits(
        models=_first(own.models, defaults.models),
        requests_per_minute=_first(own.requests_per_minute, defaults.requests_per_minute),
        tokens_per_minute=_first(own.tokens_per_minute, defaults.tokens_per_minute),
        max_concurrent=_first(own.max_concurrent, defaults.max_concurrent),
        max_queued=_first(own.max_queued, defaults.max_queued),
        max_tokens=_first(own.max_tokens, defaults.max_tokens),
        priority=min(own.priority, defaults.priority, key=PRIORITY_CLASSES.index),
        default_priority=_first(own.default_priority, defaults.default_priority),
    )


def share_of(limits: CallerLimits, num_balancers: int) -> CallerLimits:
    """Return one balancer's share of a caller's `limits`; all balancers together give the limits.

    Shares are rounded up, so the total may exceed a limit by one for each balancer.
    """
    if num_balancers == 1:
        return limits
    return replace(
        limits,
        requests_per_minute=_share(limits.requests_per_minute, num_balancers),
        tokens_per_minute=_share(limits.tokens_per_minute, num_balancers),
        max_concurrent=_share(limits.max_concurrent, num_balancers),
        max_queued=_share(limits.max_queued, num_balancers),
    )


def _share(limit: int | None, num_balancers: int) -> int | None:
    return None if limit is None else -(-limit // num_balancers)


def _first(own: T | None, default: T | None) -> T | None:
    return default if own is None else own
