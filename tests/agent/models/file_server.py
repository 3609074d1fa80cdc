"""A web server on loopback whose files are served as badly as a test wants."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

from tests.waiting import HANGS


def model(size: int = 200_000, seed: int = 1) -> bytes:
    """Bytes that begin as a GGUF and repeat nowhere near."""
    return (b"GGUF" + Random(seed).randbytes(size))[:size]


@dataclass
class Served:
    """How a path is served. `cuts`: how many bytes each of the first answers sends, then breaks;
    `piece_cuts`: of those to requests for a piece that ends before the file does.

    The file has `padding` more bytes than `data`, which are not to be asked for.
    `statuses` are the first answers. `held` lets the rest of a body wait after `held_after` bytes.
    """

    data: bytes = b""
    padding: int = 0
    etag: str | None = '"v1"'
    cuts: list[int] = field(default_factory=list)
    piece_cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    location: str | None = None
    has_ranges: bool = True
    has_length: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    held: threading.Event | None = None
    held_after: int = 0


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def is_piece(self) -> bool:
        """Whether it is for a piece that ends before the file does."""
        return re.fullmatch(r"bytes=\d+-\d+", self.headers.get("range", "")) is not None

    @property
    def first_byte(self) -> int | None:
        found = re.fullmatch(r"bytes=(\d+)-\d*", self.headers.get("range", ""))
        return int(found[1]) if found else None


class FileServer:
    """Serves `paths`; remembers what it was asked."""

    def __init__(self) -> None:
        self.paths: dict[str, Served] = {}
        self.asked: list[Asked] = []
        self.is_holding = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def serve(self, path: str, served: Served) -> str:
        """The URL of `path`, which is served so from now on."""
        self.paths[path] = served
        return self.url + path

    def starts(self, path: str) -> list[int | None]:
        """Where the requests for the rest of `path` began: `None` is the whole file."""
        return [
            asked.first_byte
            for asked in self.asked
            if urlsplit(asked.path).path == path and not asked.is_piece
        ]

    def close(self) -> None:
        for served in self.paths.values():
            if served.held is not None:
                served.held.set()
        self._server.shutdown()
        self._thread.join(HANGS)
        self._server.server_close()

    def start(self) -> None:
        self._thread.start()


@contextmanager
def file_server() -> Iterator[FileServer]:
    server = FileServer()
    server.start()
    try:
        yield server
    finally:
        server.close()


def _handler_of(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.asked.append(Asked(self.command, self.path, headers))
            self.close_connection = True
            served = server.paths.get(urlsplit(self.path).path)
            if served is None:
                self._head(404, {"content-length": "0"})
            elif served.statuses:
                self._head(served.statuses.pop(0), {"content-length": "0", **served.headers})
            elif served.location is not None:
                self._head(
                    302, {**served.headers, "content-length": "0", "location": served.location}
                )
            else:
                self._file(served)

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def _head(self, status: int, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()

        def _file(self, served: Served) -> None:
            first = self._first_byte(served)
            total = len(served.data) + served.padding
            if first is not None and first >= total:
                self._head(416, {"content-length": "0", "content-range": f"bytes */{total}"})
                return
            end = self._end(served)
            headers = dict(served.headers)
            if served.etag is not None:
                headers["etag"] = served.etag
            if served.has_length:
                headers["content-length"] = str(end - (first or 0))
            if first is not None:
                headers["content-range"] = f"bytes {first}-{end - 1}/{total}"
            self._head(200 if first is None else 206, headers)
            self._body(served, served.data[first or 0 : end])

        def _first_byte(self, served: Served) -> int | None:
            found = re.fullmatch(r"bytes=(\d+)-\d*", self.headers.get("range", ""))
            condition = self.headers.get("if-range")
            is_same = condition is None or condition == served.etag
            return int(found[1]) if found and served.has_ranges and is_same else None

        def _end(self, served: Served) -> int:
            """Behind the last byte that was asked for."""
            found = re.fullmatch(r"bytes=\d+-(\d+)", self.headers.get("range", ""))
            total = len(served.data) + served.padding
            return min(int(found[1]) + 1, total) if found and served.has_ranges else total

        def _body(self, served: Served, data: bytes) -> None:
            is_piece = re.fullmatch(r"bytes=\d+-\d+", self.headers.get("range", ""))
            if cuts := served.piece_cuts if is_piece else served.cuts:
                data = data[: cuts.pop(0)]
            if served.held is not None:
                self.wfile.write(data[: served.held_after])
                self.wfile.flush()
                server.is_holding.set()
                served.held.wait(HANGS)
                data = data[served.held_after :]
            try:
                self.wfile.write(data)
            except OSError:
                return  # The test killed the client.

    return Handler
