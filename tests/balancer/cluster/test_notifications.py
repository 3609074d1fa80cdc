import pytest

from arriero.balancer.cluster.notifications import (
    MOST_TEXT,
    SUBJECTS,
    Answered,
    Asked,
    CancelRequest,
    Changed,
    News,
    RetryAgent,
    SessionTold,
    decoded,
    encoded,
)


@pytest.mark.parametrize(
    "news", [*map(Changed, SUBJECTS), CancelRequest("r" * 200), RetryAgent("ä" * 200)]
)
def test_news_are_small_and_read_as_they_were_told(news: News) -> None:
    assert decoded(encoded(news)) == news
    assert len(encoded(news).encode()) < 1000


RUN = "0" * 32


@pytest.mark.parametrize(
    "news",
    [
        SessionTold(2 * RUN, "é" * 200, 2 * RUN, 2 * RUN, 1.5e9),
        Asked(RUN, RUN, "requests", '"' * MOST_TEXT),
        Answered(RUN, RUN, RUN, 63, 64, "+" * MOST_TEXT),
    ],
)
def test_a_piece_fits_into_what_postgresql_takes(news: News) -> None:
    assert decoded(encoded(news)) == news
    plain = len(encoded(news)) - encoded(news).count("\\")
    assert plain < 7000


@pytest.mark.parametrize(
    "news", [Asked("i", "r", "w", "ä"), Answered("i", "t", "b", 64, 65, ""), Asked("", "", "")]
)
def test_what_is_too_long_or_not_ascii_is_left_out(news: News) -> None:
    assert decoded(encoded(news)) is None


@pytest.mark.parametrize(
    "text", ["", "{}", '{"type":"changed","what":"moon"}', '{"type":"later","id":"r"}', "\0"]
)
def test_another_versions_news_are_left_out(text: str) -> None:
    assert decoded(text) is None


def test_more_fields_of_a_later_version_do_no_harm() -> None:
    assert decoded('{"type":"changed","what":"keys","why":"x"}') == Changed("keys")
