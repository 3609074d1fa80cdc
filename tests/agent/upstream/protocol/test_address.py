import pytest

from arriero.agent.upstream.protocol.address import ApiAddress


@pytest.mark.parametrize(
    ("url", "root", "api", "shown"),
    [
        ("http://h:8000", "http://h:8000", "http://h:8000/v1", "h:8000"),
        ("http://h:8000/", "http://h:8000", "http://h:8000/v1", "h:8000"),
        ("http://h:8000/v1", "http://h:8000", "http://h:8000/v1", "h:8000"),
        ("https://c.dev/openai/v2/", "https://c.dev", "https://c.dev/openai/v2", "c.dev"),
        ("http://[::1]:80", "http://[::1]:80", "http://[::1]:80/v1", "[::1]:80"),
    ],
)  # fmt: skip
def test_a_path_is_the_apis(url: str, root: str, api: str, shown: str) -> None:
    address = ApiAddress.of(url)
    assert (address.root, address.api, address.shown) == (root, api, shown)
