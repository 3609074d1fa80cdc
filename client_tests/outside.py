"""The internet as clients under test see it: a proxy that refuses, and records who was asked for.

Programs get it as `HTTPS_PROXY` and `HTTP_PROXY`. Tests pass without a network, and nothing that
a client reports about itself leaves the machine.
"""

import asyncio

_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Outside:
    """`asked`: the targets that clients wanted to reach, such as `example.com:443`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._refuse, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode(errors="replace").split()
            self.asked += line[1:2]
            writer.write(_REFUSAL)
            await writer.drain()
        except ConnectionError:
            pass  # The client did not wait for the refusal.
        finally:
            writer.close()

    @property
    def settings(self) -> dict[str, str]:
        """Environment that sends a program here for all but loopback addresses."""
        names = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
        loopback = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return dict.fromkeys(names, self.url) | loopback
