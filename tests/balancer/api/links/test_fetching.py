"""Links are fetched within bounds, and from addresses that were checked."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer

from arriero.balancer.api.links.fetching import MAX_URL, Fetcher, FetchLimits, LinkError, is_public
from tests.waiting import HANGS, given_time, until

HERE = "127.0.0.1"
LIMITS = FetchLimits(num_bytes=100, seconds=HANGS, redirects=2, at_once=2)


@dataclass
class Names(AbstractResolver):
    """Each name has the addresses that are listed for it, one list a question."""

    answers: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if not self.answers.get(host):
            raise OSError("no such name")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in self.answers[host].pop(0)
        ]

    async def close(self) -> None:
        pass


@dataclass
class Site:
    """A server on loopback; `names` is what resolves, at first `pictures.test`."""

    port: int
    names: Names
    seen: list[web.Request]
    release: asyncio.Event

    def url(self, path: str, host: str = "pictures.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def fetcher(self, limits: FetchLimits = LIMITS, *, trusts_here: bool = True) -> Fetcher:
        def is_allowed(address: str) -> bool:
            return is_public(address) or (trusts_here and address == HERE)

        return Fetcher(limits, resolver=lambda: self.names, is_allowed=is_allowed)


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site(0, Names({"pictures.test": [[HERE]]}), [], asyncio.Event())

    async def answer(request: web.Request) -> web.StreamResponse:
        site.seen.append(request)
        match request.path.strip("/").split("/", 1):
            case ["bytes", num]:
                return web.Response(body=b"x" * int(num))
            case ["drip", num]:
                response = web.StreamResponse()  # without a length
                await response.prepare(request)
                await response.write(b"x" * int(num))
                return response
            case ["to", place]:
                return web.Response(status=302, headers={"Location": place.replace("~", ":", 1)})
            case ["zip"]:
                return web.Response(body=b"x", headers={"Content-Encoding": "gzip"})
            case ["wait"]:
                await site.release.wait()
                return web.Response(body=b"late")
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    server = TestServer(app, host=HERE)
    await server.start_server()
    site.port = server.port or 0
    try:
        yield site
    finally:
        site.release.set()
        await server.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as site:
        yield site


async def refused(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(LinkError) as caught:
        await fetcher.fetch(url)
    return str(caught.value)


async def test_a_file_comes_without_anything_of_who_asks(site: Site) -> None:
    assert await site.fetcher().fetch(site.url("/bytes/100")) == b"x" * 100
    assert site.names.asked == ["pictures.test"], "resolved once"
    headers = site.seen[0].headers
    assert headers["Accept-Encoding"] == "identity"
    assert {"Cookie", "Authorization", "Referer"}.isdisjoint(headers)


@pytest.mark.parametrize("path", ["/bytes/101", "/drip/101"])
async def test_a_file_has_a_limit(site: Site, path: str) -> None:
    assert "larger than 100 bytes" in await refused(site.fetcher(), site.url(path))


async def test_answers_that_are_no_file(site: Site) -> None:
    site.names.answers["pictures.test"] *= 2
    assert "status 404" in await refused(site.fetcher(), site.url("/gone"))
    assert "compressed" in await refused(site.fetcher(), site.url("/zip"))
    assert "cannot be reached" in await refused(site.fetcher(), site.url("/", "unknown.test"))


PRIVATE = [[HERE], ["10.0.0.1"], ["::1"], ["::ffff:1.1.1.1"], ["1.1.1.1", "169.254.169.254"]]


@pytest.mark.parametrize("addresses", PRIVATE, ids=str)
async def test_names_of_private_addresses_are_not_asked(site: Site, addresses: list[str]) -> None:
    site.names.answers["pictures.test"] = [addresses]
    fetcher = site.fetcher(trusts_here=False)
    assert "public address" in await refused(fetcher, site.url("/bytes/1"))
    assert site.seen == []


@pytest.mark.parametrize(
    "host", [HERE, "[::1]", "[fe80::1%25eth0]", "169.254.169.254", "[::ffff:127.0.0.1]"]
)
async def test_private_addresses_are_not_asked(site: Site, host: str) -> None:
    fetcher = site.fetcher(trusts_here=False)
    assert "public address" in await refused(fetcher, site.url("/bytes/1", host))
    assert site.seen == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "localhost"])
async def test_other_ways_to_write_a_private_address(site: Site, host: str) -> None:
    why = await refused(Fetcher(LIMITS), site.url("/bytes/1", host))
    assert "public address" in why or "cannot be reached" in why
    assert site.seen == []


async def test_a_name_that_changes_its_address_is_asked_once(site: Site) -> None:
    site.names.answers["pictures.test"] = [[HERE], ["10.0.0.1"]]
    assert await site.fetcher().fetch(site.url("/bytes/1")) == b"x"
    assert site.names.answers["pictures.test"] == [["10.0.0.1"]]


async def test_each_redirect_is_checked(site: Site) -> None:
    site.names.answers = {
        "pictures.test": [[HERE]] * 9,
        "inside.test": [["192.168.0.7"]],
        "outside.test": [[HERE]],
    }
    fetcher = site.fetcher()
    there = site.url("/bytes/3", "outside.test").replace(":", "~", 1)
    assert await fetcher.fetch(site.url(f"/to/{there}")) == b"xxx"
    inside = site.url("/bytes/3", "inside.test").replace(":", "~", 1)
    assert "public address" in await refused(fetcher, site.url(f"/to/{inside}"))
    assert "public address" in await refused(fetcher, site.url("/to/http~//192.168.0.7/"))
    assert "http://" in await refused(fetcher, site.url("/to/file~///etc/passwd"))
    assert "redirects more" in await refused(fetcher, site.url("/to//to//to//bytes/1"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "http://"),
        ("http://", "http://"),
        ("http://[", "no valid"),
        ("http://me:secret@pictures.test/", "a user or a password"),
        (f"http://pictures.test/{'x' * MAX_URL}", f"{MAX_URL} characters"),
    ],
)
async def test_links_that_are_not_followed(site: Site, url: str, why: str) -> None:
    assert why in await refused(site.fetcher(), url)
    assert site.names.asked == []


async def test_all_take_a_while_at_most_and_few_go_at_once(site: Site) -> None:
    site.names.answers["pictures.test"] *= 3
    fetcher = site.fetcher(FetchLimits(seconds=2.0, at_once=1))
    urls = [site.url("/wait"), site.url("/bytes/1")]
    async with given_time() as time:
        tasks = [asyncio.ensure_future(refused(fetcher, url)) for url in urls]
        await until(lambda: site.seen)
        assert fetcher.num_open == 2
        await time.passes(2.0)
        assert [await task for task in tasks] == ["it was not received within 2 s"] * 2
    assert [request.path for request in site.seen] == ["/wait"], "the other waited for it"
    assert fetcher.num_open == 0


# ---- public addresses


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111"])
def test_public_addresses(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("192.0.2.1", "198.18.0.1", "203.0.113.9"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "ff0e::1"),
        *("2001:db8::1", "::ffff:1.1.1.1", "::ffff:127.0.0.1", "::1.1.1.1", "::ffff:0:1.1.1.1"),
        *("64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1"),
        *("", "localhost", "2130706433", "1.1.1.1.", "1.1.1"),
    ],
)
def test_others(text: str) -> None:
    assert not is_public(text)
