"""Pages elsewhere: by a name rebound to this machine, by another port of it, by an image."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

EVIL = "evil.example"


async def raw(address: str, head: str) -> tuple[int, bytes]:
    """The status and the body of the answer to a request without a body."""
    host, port = address.split(":")
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode())
        answer = await reader.read()
        writer.close()
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), rest


def code(body: Any) -> object:
    return body["error"]["code"]


@pytest.mark.asyncio(loop_scope="session")
async def test_another_host_is_refused_everywhere(long_fleet: Fleet) -> None:
    ready = long_fleet.balancer.ready

    async def attack(seen: Bystander) -> None:
        for base, paths in (
            (long_fleet.inference, ["/api/v1/generate", "/health", "/api/v1/socket", "/nowhere"]),
            (long_fleet.management, ["/", "/api/v1/requests", "/api/v1/agent-socket", "/metrics"]),
        ):
            port = base.rpartition(":")[2]
            headers = {"Host": f"{EVIL}:{port}", "Origin": f"http://{EVIL}:{port}"}
            for path in paths:
                async with long_fleet.http.get(base + path, headers=headers) as response:
                    assert response.status == 403, path
                    assert code(await response.json()) == "forbidden_host"
                with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                    await long_fleet.http.ws_connect(base + path, headers=headers)
                assert caught.value.status == 403
        for address in (ready["inference"], ready["management"]):
            for hosts in ("", f"Host: {address}\r\nHost: {EVIL}\r\n"):
                head = f"GET /health HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"
                status, _ = await raw(address, head)
                assert status in (400, 403), hosts
            rest = f"HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            for target in (f"http://{EVIL}/health", f"http://{address}@{EVIL}/health"):
                status, body = await raw(address, f"GET {target} {rest}")
                assert (status, code(json.loads(body))) == (403, "forbidden_host"), target
            status, _ = await raw(address, f"GET http://{address}/health {rest}")
            assert status == 200
            status, body = await raw(address, "GET /health HTTP/1.0\r\n\r\n")
            assert (status, code(json.loads(body))) == (403, "forbidden_host")

    await unnoticed(long_fleet, attack)


async def test_names_that_were_given_are_answered(fleet: Fleet) -> None:
    await fleet.start_balancer(allowed_host="gpu-box")
    for base in (fleet.inference, fleet.management):
        port = base.rpartition(":")[2]
        for host in ("gpu-box", f"gpu-box:{port}", f"localhost:{port}"):
            async with fleet.http.get(f"{base}/health", headers={"Host": host}) as response:
                assert response.status == 200, host


@pytest.mark.asyncio(loop_scope="session")
async def test_an_origin_that_only_ends_like_the_host(bare_fleet: Fleet) -> None:
    address = bare_fleet.balancer.ready["inference"]
    url = f"{bare_fleet.inference}/api/v1/generate"
    for prefix in ("evil-", "evil", "x."):
        headers = {"Origin": f"http://{prefix}{address}"}
        async with bare_fleet.http.post(url, json={"prompt": "x"}, headers=headers) as response:
            assert (response.status, code(await response.json())) == (403, "forbidden")


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_of_another_server_on_this_host(bare_fleet: Fleet) -> None:
    for base, path in (
        (bare_fleet.inference, "/api/v1/socket"),
        (bare_fleet.inference, "/v1/responses"),
        (bare_fleet.management, "/api/v1/agent-socket"),
    ):
        for origin in ("http://127.0.0.1", "https://127.0.0.1", "http://localhost"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await bare_fleet.http.ws_connect(base + path, headers={"Origin": origin})
            assert caught.value.status == 403, (path, origin)


@pytest.mark.asyncio(loop_scope="session")
async def test_an_image_of_a_page_elsewhere_has_nothing_done(bare_fleet: Fleet) -> None:
    """An agent that were sent to the address would be heard there."""
    await bare_fleet.start_agent()
    asked: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fit = f"/api/v1/models/fit?source=http://127.0.0.1:{port}/m.gguf"
        acting = (
            (bare_fleet.management, fit),
            (bare_fleet.inference, "/props"),
            (bare_fleet.inference, "/tokenizer_info"),
        )
        browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/70.0"}
        for base, path in acting:
            for method in ("GET", "HEAD"):
                for headers in (
                    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
                    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
                    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
                    browser,
                    {"Referer": "http://evil.example/"},
                ):
                    request = bare_fleet.http.request(method, base + path, headers=headers)
                    async with request as response:
                        assert response.status == 403, (path, headers)
        assert asked == []
        async with bare_fleet.http.get(bare_fleet.management + fit) as response:
            assert response.status == 200
            assert len((await response.json())["agents"]) == 1
        assert asked[0].startswith(b"GET /m.gguf")


@pytest.mark.asyncio(loop_scope="session")
async def test_no_path_is_for_images_of_pages_elsewhere(bare_fleet: Fleet) -> None:
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    for base in (bare_fleet.inference, bare_fleet.management):
        async with bare_fleet.http.get(f"{base}/openapi.json") as response:
            document = await response.json()
        for path in [each for each, methods in document["paths"].items() if "get" in methods]:
            async with bare_fleet.http.get(base + path, headers=image) as response:
                assert (response.status, code(await response.json())) == (403, "forbidden"), path
