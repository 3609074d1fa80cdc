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
    SessionChanged,
    decoded,
    encoded,
)


@pytest.mark.parametrize(
    "notification", [*map(Changed, SUBJECTS), CancelRequest("r" * 200), RetryAgent("ä" * 200)]
)
def test_notifications_are_small_and_read_as_they_were_sent(notification: Notification) -> None:
    assert decoded(encoded(notification)) == notification
    assert len(encoded(notification).encode()) < 1000


RUN = "0" * 32


@pytest.mark.parametrize(
    "notification",
    [
        SessionChanged(2 * RUN, "é" * 200, 2 * RUN, 2 * RUN, 1.5e9),
        Asked(RUN, RUN, "requests", '"' * MOST_TEXT),
        Answered(RUN, RUN, RUN, 63, 64, "+" * MOST_TEXT),
    ],
)
def test_a_piece_fits_into_what_postgresql_takes(notification: Notification) -> None:
    assert decoded(encoded(notification)) == notification
    plain = len(encoded(notification)) - encoded(notification).count("\\")
    assert plain < 7000


@pytest.mark.parametrize(
    "notification",
    [Asked("i", "r", "w", "ä"), Answered("i", "t", "b", 64, 65, ""), Asked("", "", "")],
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
