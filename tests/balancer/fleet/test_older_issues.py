"""What older agents' messages say of adapters."""

from dataclasses import replace

from arriero.balancer.fleet.older_issues import with_adapters
from arriero.shared.messages import Issue

BROKEN = Issue(code="adapter", message="adapter `bad`: no adapter `good`: can be read")


def test_the_adapter_is_the_one_that_the_message_begins_with() -> None:
    assert with_adapters([BROKEN]) == (replace(BROKEN, adapter="bad"),)


def test_other_issues_stay_as_they_are() -> None:
    for message in (
        "the host is full",
        "no adapter `bad`: x",
        "adapter `b d`: x",
        "adapter `bad` x",
    ):
        issue = Issue(code="disk_full", message=message)
        assert with_adapters([issue]) == (issue,)
