"""Bytes that are not HTTP, on both ports: answered 400 or cut off, and no error of the balancer."""

import asyncio
import json

from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

HOST = b"Host: localhost\r\n"
POST = b"POST /api/v1/generate HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
ENDS = b"Connection: close\r\n"

MALFORMED = (
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + HOST + b"Bad Header\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + HOST + b"B@d: \x00\r\n\r\n",
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET / HTTP/9.9\r\n" + HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 5000 + b"\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nqq\r\n0\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    POST + b"Content-Length: -5\r\n\r\nhello",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    bytes(range(256)),
)
UNREADABLE = (
    POST + ENDS + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
    POST + ENDS + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    POST.replace(b"generate", b"nowhere")
    + ENDS
    + b"Content-Encoding: deflate\r\nContent-Length: 5\r\n\r\nhello",
)
"""Valid HTTP with a body that is not what it says, and that nothing tries to read."""


async def answer(address: str, sent: bytes) -> bytes:
    """What comes until the balancer closes the connection."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        async with asyncio.timeout(DEADLINE):
            return await reader.read()
    finally:
        writer.close()


async def test_malformed_http(serving: Fleet) -> None:
    ready = serving.balancer.ready

    async def attack(seen: Bystander) -> None:
        for address in (ready["inference"], ready["management"]):
            for sent in MALFORMED:
                status, *_ = (await answer(address, sent)).splitlines()
                assert b" 400 " in status, sent[:100]
            for sent in UNREADABLE:
                status, *_ = (await answer(address, sent)).splitlines()
                assert status.startswith(b"HTTP/1.1 415 "), sent[:100]

    await unnoticed(serving, attack)
    assert await serving.balancer.terminate() == 0
    logged = [json.loads(line) for line in serving.balancer.stderr]
    assert not [entry for entry in logged if entry["level"] == "error" or "traceback" in entry]
    assert any("malformed HTTP" in entry["message"] for entry in logged)
