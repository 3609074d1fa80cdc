"""When a certificate's end is told."""

import pytest

from arriero.balancer.tls.expiry import DAY, WARN_BEFORE, issue, warning
from arriero.shared.messages import Issue


def test_nothing_is_said_while_it_is_far_and_then_once_a_day() -> None:
    left, said = 90 * DAY, []
    while left > 0:
        found = warning(left)
        said.append(found.message)
        left -= found.look_again
    assert said[0] is None
    assert len(said) == 1 + 14
    assert said[1] == "the certificate expires in 14 days; renew it"
    assert said[-1] == "the certificate expires in 1 day; renew it"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (WARN_BEFORE, "in 14 days"),
        (DAY * 1.5, "in 1 day;"),
        (3600, "in less than a day"),
        (0, "has expired"),
        (-5 * DAY, "has expired"),
    ],
)
def test_the_words(left: float, words: str) -> None:
    found = warning(left)
    assert found.message is not None and words in found.message
    assert 0 < found.look_again <= DAY


def test_the_issue_says_what_to_do() -> None:
    assert issue(90 * DAY) is None
    assert issue(3 * DAY) == Issue(
        code="certificate_expires", message="the certificate expires in 3 days", hint="renew it"
    )
    assert issue(-DAY) == Issue(
        code="certificate_expires",
        message="the certificate has expired: clients refuse it",
        hint="renew it",
    )
