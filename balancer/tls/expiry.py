"""When to warn of a certificate that expires."""

from dataclasses import dataclass

from ...shared.messages import Issue

DAY = 24 * 3600.0
WARN_BEFORE = 14 * DAY
"""Certificates of ACME's authorities are renewed a month before their end, so this means that a
renewal has failed."""


@dataclass(frozen=True, slots=True)
class Warning:
    """What to say now, if anything, and in how many seconds to look again."""

    message: str | None
    look_again: float


def issue(seconds_left: float) -> Issue | None:
    """The warning for operators, as an issue of the balancer."""
    message = warning(seconds_left).message
    if message is None:
        return None
    reason, _, hint = message.partition("; ")
    return Issue(code="certificate_expires", message=reason, hint=hint)


def warning(seconds_left: float) -> Warning:
    """A warning a day from `WARN_BEFORE` on."""
    if seconds_left > WARN_BEFORE:
        return Warning(None, seconds_left - WARN_BEFORE)
    if seconds_left <= 0:
        return Warning("the certificate has expired: clients refuse it; renew it", DAY)
    days = int(seconds_left // DAY)
    when = "in less than a day" if days == 0 else "in 1 day" if days == 1 else f"in {days} days"
    look_again = min(DAY, seconds_left)
    return Warning(f"the certificate expires {when}; renew it", look_again)
