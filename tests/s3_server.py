"""An S3 server to test with: moto's, over HTTP, in a thread of this process."""

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from tests.waiting import HANGS

INSTALL = "an S3 server to test with: pip install -c constraints.txt -e '.[test]'"
SECRET = "wJalrXUtnFEMI-not-for-logs"


@dataclass(frozen=True)
class Server:
    """An S3 server with a bucket `bucket`."""

    url: str
    stop: Callable[[], None]

    @property
    def environment(self) -> dict[str, str]:
        """What a user sets to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def ask(self, method: str, path: str, data: bytes | None = None) -> tuple[bytes, str]:
        """Without any library of S3's: the body, and the ETag."""
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return answer.read(), answer.headers.get("ETag", "")


def started() -> Server:
    from moto import server as moto_server  # takes seconds to import

    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    started = Server(f"http://{host}:{port}", server.stop)
    started.ask("PUT", "/bucket")
    return started
