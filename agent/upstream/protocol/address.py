"""Where an upstream's API is.

A URL without a path is a server's root, whose API is under `/v1`, as everywhere but in some clouds:
there the path is part of the URL (`https://cloud.example/openai/v1`).
"""

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """`api` is what paths such as `/chat/completions` are added to, `root` the server's own."""

    root: str
    api: str

    @classmethod
    def of(cls, url: str) -> "ApiAddress":
        """The address in `url`, which is http or https without credentials, query and fragment."""
        parts = urlsplit(url)
        root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        path = parts.path.rstrip("/") or "/v1"
        return cls(root, root + path)

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.root).netloc
