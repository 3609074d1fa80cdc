"""Where a key may stand in a request, and where it must not."""

from urllib.parse import quote

import pytest
from multidict import CIMultiDict

from arriero.balancer.api.guard import is_upgrade, keys_in, refuse_key_in_url
from arriero.shared.errors import Unauthorized
from tests.balancer.access.builders import secret

KEY = secret(1)


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ([], []),
        ([("Authorization", f"Bearer {KEY}")], [KEY]),
        ([("authorization", f"bearer  {KEY} ")], [KEY]),
        ([("X-API-Key", KEY)], [KEY]),
        ([("Authorization", "Bearer a"), ("x-api-key", "b")], ["a", "b"]),
        ([("Authorization", "Basic cHJveHk6cHc="), ("x-api-key", KEY)], [KEY]),
        ([("Authorization", KEY)], []),
        ([("Authorization", "Bearer "), ("x-api-key", "")], []),
        ([("x-api-key", "x" * 513)], []),
    ],
)
def test_keys_stand_in_two_headers(headers: list[tuple[str, str]], keys: list[str]) -> None:
    assert keys_in(CIMultiDict(headers)) == keys


@pytest.mark.parametrize(
    "url",
    [
        f"/v1/models?key={KEY}",
        f"/{KEY}",
        f"/?a=b&{KEY}",
        f"/?k={quote(KEY, safe='').replace('_', '%5F')}",
    ],
)
def test_a_key_in_a_url_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(Unauthorized, match="do not send an access key in a URL") as refusal:
        refuse_key_in_url(url)
    assert KEY not in refusal.value.message


@pytest.mark.parametrize("url", ["/", "/v1/models?limit=5", "/v1/models/ark_model", "/%zz"])
def test_other_urls_are_fine(url: str) -> None:
    refuse_key_in_url(url)


def test_what_asks_for_a_websocket() -> None:
    assert is_upgrade(CIMultiDict(upgrade="WebSocket"))
    assert not is_upgrade(CIMultiDict())
