"""Whether a caller may send another request now: the accounts of all callers with limits.

Keys have one account each, and callers without a key one for each address (of IPv6 for each
/64 network, since a host has all of it).

Invariants: callers without limits have no account; accounts whose requests run are never forgotten;
besides those, at most `MAX_ACCOUNTS` of keys and as many of addresses are kept. Addresses never
crowd out keys.
"""

from collections import OrderedDict
from collections.abc import Iterable

from ....shared.errors import RequestError
from ....shared.inference import RequestId
from ...fleet.caller import Account, Caller
from ..identity import NO_LIMITS, CallerLimits
from .account import NO_STANDING, Demand, Standing, UsageAccount
from .rules import joined, share_of

MAX_ACCOUNTS = 4096


class Limiter:
    """Times are seconds and never go back."""

    def __init__(
        self, *, keys: CallerLimits = NO_LIMITS, anonymous: CallerLimits = NO_LIMITS
    ) -> None:
        """`keys` are the limits of keys that have none of their own, `anonymous` of no key."""
        self._keys = keys
        self._anonymous = anonymous
        self._accounts: tuple[OrderedDict[Account, UsageAccount], ...] = (
            OrderedDict(),
            OrderedDict(),
        )
        self._owners: dict[RequestId, UsageAccount] = {}
        self.num_balancers = 1
        """Those that share the callers, this one among them; each lets them have its share."""

    @property
    def num_accounts(self) -> int:
        """How many callers it knows."""
        return sum(map(len, self._accounts))

    @property
    def counted(self) -> Iterable[RequestId]:
        """Requests that have not ended and count against limits."""
        return self._owners.keys()

    def limits_of(self, caller: Caller) -> CallerLimits:
        """Of its key, and defaults for what that leaves open; this balancer's share of them."""
        defaults = self._anonymous if caller.is_anonymous else self._keys
        return share_of(joined(caller.limits, defaults), self.num_balancers)

    def refusal(self, caller: Caller, demand: Demand, now: float) -> RequestError | None:
        """Why `caller` may not send this now; `None` if it may, and then `admitted` may follow."""
        limits = self.limits_of(caller)
        if not _is_counted(limits):
            return None
        account = self._find(caller)
        return (account or UsageAccount()).refusal(limits, demand, now)

    def admitted(self, id: RequestId, caller: Caller, demand: Demand, now: float) -> None:
        """A request that may be sent was accepted."""
        limits = self.limits_of(caller)
        if not _is_counted(limits):
            return
        account = self._open(caller)
        account.admitted(id, limits, demand, now)
        self._owners[id] = account

    def ended(self, id: RequestId, num_tokens: int, now: float) -> None:
        """A request has ended, having taken so many tokens. Those not admitted are ignored."""
        if (account := self._owners.pop(id, None)) is not None:
            account.ended(id, num_tokens, now)

    def live(self, caller: Caller) -> list[RequestId]:
        """The requests of its account that have not ended, if the caller has limits."""
        account = self._find(caller)
        return [] if account is None else account.live

    def standing(self, caller: Caller, now: float) -> Standing:
        """How much of its limits is left."""
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
        """For tests: raise if an invariant does not hold."""
        accounts = [each for kind in self._accounts for each in kind.values()]
        for account in accounts:
            account.check_integrity()
        live = {id for account in accounts for id in account.live}
        if live != self._owners.keys():
            raise RuntimeError("a request belongs to no account, or to one that was forgotten")


def _forget_one(accounts: OrderedDict[Account, UsageAccount]) -> None:
    """The one that was used longest ago and has nothing running, if there is one."""
    idle = next((key for key, account in accounts.items() if not account.num_live), None)
    if idle is not None:
        del accounts[idle]


def _is_counted(limits: CallerLimits) -> bool:
    return not (
        limits.requests_per_minute is None
        and limits.tokens_per_minute is None
        and limits.max_concurrent is None
        and limits.max_queued is None
    )
