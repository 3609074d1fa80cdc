import pytest

from arriero.balancer.store.news.records import (
    SUBJECTS,
    CancelRequest,
    Changed,
    News,
    RetryAgent,
    decoded,
    encoded,
)


@pytest.mark.parametrize(
    "news", [*map(Changed, SUBJECTS), CancelRequest("r" * 200), RetryAgent("ä" * 200)]
)
def test_news_are_small_and_read_as_they_were_told(news: News) -> None:
    assert decoded(encoded(news)) == news
    assert len(encoded(news).encode()) < 1000


@pytest.mark.parametrize(
    "text", ["", "{}", '{"type":"changed","what":"moon"}', '{"type":"later","id":"r"}', "\0"]
)
def test_another_versions_news_are_left_out(text: str) -> None:
    assert decoded(text) is None


def test_more_fields_of_a_later_version_do_no_harm() -> None:
    assert decoded('{"type":"changed","what":"keys","why":"x"}') == Changed("keys")
