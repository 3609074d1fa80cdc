"""Where a download may be sent on to."""

import pytest

from arriero.agent.models.download.redirects import RedirectError, headers_for, next_url


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("https://a/x", "https://b/y?sig=1", "https://b/y?sig=1"),
        ("https://a/x", "/y", "https://a/y"),
        ("http://mirror:80/x", "http://mirror/y", "http://mirror/y"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:2/y", "http://127.0.0.1:2/y"),
        ("http://localhost/x", "http://[::1]/y", "http://[::1]/y"),
        ("http://127.0.0.1/x", "https://b/y", "https://b/y"),
    ],
)
def test_to_https_and_to_where_it_is_already(url: str, location: str, target: str) -> None:
    assert next_url(url, location) == target


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("https://a/x", "http://a/x"),
        ("https://a/x", "http://127.0.0.1:8060/api"),
        ("https://a/x", "file:///etc/passwd"),
        ("https://a/x", "http://[::1"),
        ("http://127.0.0.1/x", "http://10.0.0.1/y"),
        ("http://127.0.0.1/x", "ftp://127.0.0.1/y"),
    ],
)
def test_nowhere_else(url: str, location: str) -> None:
    with pytest.raises(RedirectError):
        next_url(url, location)


def test_an_error_names_no_signature() -> None:
    with pytest.raises(RedirectError) as caught:
        next_url("https://a/x?token=secret", "http://b/y?sig=secret")
    assert "secret" not in str(caught.value)


def test_a_token_goes_to_no_other_host() -> None:
    headers = {"Authorization": "Bearer t", "range": "bytes=1-"}
    assert headers_for("https://a/x", "https://a:443/y", headers) == headers
    assert headers_for("https://a/x", "https://b/y", headers) == {"range": "bytes=1-"}
    assert headers_for("https://a/x", "https://a:8443/y", headers) == {"range": "bytes=1-"}
