import pytest

from arriero.balancer.cluster.notifications import (
    MOST_TEXT,
    SUBJECTS,
    Answered,
    Asked,
    CancelRequest,
    Changed,
    Notification,
    RetryAgent,
    decoded,
    encoded,
)
from arriero.balancer.cluster.worker_messages import MOST_BYTES


@pytest.mark.parametrize(
    "notification", [*map(Changed, SUBJECTS), CancelRequest("r" * 200), RetryAgent("ä" * 200)]
)
def test_notifications_are_small_and_read_as_they_were_sent(notification: Notification) -> None:
    assert decoded(encoded(notification)) == notification
    assert len(encoded(notification).encode()) < 1000


RUN = "0" * 32


@pytest.mark.parametrize(
    "notification",
    [Asked(RUN, RUN, "requests", '"' * MOST_TEXT), Answered(RUN, RUN, RUN, "+" * MOST_TEXT)],
)
def test_the_longest_letter_fits_into_a_line_to_a_worker(notification: Notification) -> None:
    assert decoded(encoded(notification)) == notification
    plain = len(encoded(notification)) - encoded(notification).count("\\")
    assert plain < MOST_BYTES


@pytest.mark.parametrize(
    "notification",
    [Asked("i", "r", "w", "ä"), Answered("i", "t", "b", "x" * (MOST_TEXT + 1)), Asked("", "", "")],
)
def test_what_is_too_long_or_not_ascii_is_left_out(notification: Notification) -> None:
    assert decoded(encoded(notification)) is None


@pytest.mark.parametrize(
    "text", ["", "{}", '{"type":"changed","what":"moon"}', '{"type":"later","id":"r"}', "\0"]
)
def test_another_versions_news_are_left_out(text: str) -> None:
    assert decoded(text) is None


def test_more_fields_of_a_later_version_do_no_harm() -> None:
    assert decoded('{"type":"changed","what":"keys","why":"x"}') == Changed("keys")
