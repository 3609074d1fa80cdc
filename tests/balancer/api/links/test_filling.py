"""Bodies with links become bodies with pictures, or an error that names the field."""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from arriero.balancer.api.links.fetching import LinkError
from arriero.balancer.api.links.filling import MAX_LINKS, ROUND_IT, LinkFiller
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from tests.agent.engine.llama.projectors import png

T = TypeVar("T")
PICTURE = png(4, 4)
FILES = {"https://a.test/1.png": PICTURE, "https://a.test/page": b"<html>"}


class Sites:
    """What there is, and what was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []

    async def fetch(self, url: str, /) -> bytes:
        self.asked.append(url)
        if url not in self.files:
            raise LinkError("it cannot be reached")
        return self.files[url]


async def off_loop(_num_bytes: int, work: Callable[[], T], /) -> T:
    return work()


def body(*urls: str) -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()


async def filled(given: bytes, sites: Sites, most: int = 10_000) -> tuple[bytes, int]:
    """The body, and how many bytes were held for it."""
    held: list[int] = []
    filler = LinkFiller(sites.fetch, most)
    return await filler.fill(given, held.append, off_loop), sum(held)


async def test_pictures_take_the_places_of_links() -> None:
    sites = Sites(FILES)
    link, data = "https://a.test/1.png", "data:image/png;base64,AAAA"
    whole, held = await filled(body(link, data, link), sites)
    content: Any = json.loads(whole)["messages"][0]["content"]
    first, second, third = [part["image_url"]["url"] for part in content]
    assert first == third
    assert b64decode(first.removeprefix("data:image/png;base64,")) == PICTURE
    assert second == data
    assert sites.asked == [link], "once"
    assert held == len(PICTURE)


@pytest.mark.parametrize(
    "given", [b"", b"no JSON, image, http", b'{"messages": "image http"}', body("data:image/png;")]
)
async def test_other_bodies_stay_as_they_are(given: bytes) -> None:
    sites = Sites(FILES)
    assert await filled(given, sites) == (given, 0)
    assert sites.asked == []


@pytest.mark.parametrize(
    ("url", "why"), [("https://a.test/2.png", "reached"), ("https://a.test/page", "not a PNG")]
)
async def test_an_error_names_the_field(url: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        await filled(body("https://a.test/1.png", url), Sites(FILES))
    assert caught.value.field == "messages[0].content[1].image_url.url"
    assert url not in str(caught.value), "links may hold secrets"


async def test_links_are_few() -> None:
    sites = Sites({f"https://a.test/{number}": PICTURE for number in range(MAX_LINKS + 1)})
    await filled(body(*list(sites.files)[:-1]), sites)
    sites.asked.clear()
    with pytest.raises(InvalidRequest, match="at most 16"):
        await filled(body(*sites.files), sites)
    assert sites.asked == []


async def test_a_body_stays_within_its_limit() -> None:
    sites = Sites(FILES)
    given = body("https://a.test/1.png", "https://a.test/1.png")
    most = len(given) + 2 * (ROUND_IT + 4 * -(-len(PICTURE) // 3))
    whole, _ = await filled(given, sites, most)
    assert len(given) < len(whole) <= most
    with pytest.raises(RequestTooLarge, match=r"content\[0\]"):
        await filled(given, sites, most - 1)
