"""What the head of an answer says."""

import pytest

from arriero.agent.models.download.response_facts import ResponseFacts


def test_a_whole_file() -> None:
    facts = ResponseFacts.of(200, {"content-length": "10", "etag": '"v1"'})
    assert facts == ResponseFacts(status=200, total=10, validator='"v1"')


def test_a_part_of_one() -> None:
    facts = ResponseFacts.of(206, {"content-range": "bytes 5-9/10", "content-length": "5"})
    assert (facts.first_byte, facts.total) == (5, 10)
    assert ResponseFacts.of(206, {"content-range": "bytes 5-9/*"}).total is None


def test_a_weak_etag_resumes_nothing_and_a_date_stands_in_for_none() -> None:
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert ResponseFacts.of(200, {"etag": 'W/"v1"', "last-modified": date}).validator is None
    assert ResponseFacts.of(200, {"last-modified": date}).validator == date


@pytest.mark.parametrize("junk", ["", "-1", "1e9", "9" * 40, "٣", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_junk_is_nothing(junk: str) -> None:
    headers = {"content-length": junk, "retry-after": junk, "content-range": junk}
    assert ResponseFacts.of(200, headers) == ResponseFacts(status=200)
    assert ResponseFacts.of(206, headers) == ResponseFacts(status=206)
