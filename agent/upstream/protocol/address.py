"""The address of an upstream's API.

A URL without a path is a server's root, with the API under `/v1`. In some clouds the path is part
of the URL (`https://cloud.example/openai/v1`).
"""

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """An address. Paths such as `/chat/completions` follow `api`; `root` is the server's root."""

    root: str
    api: str

    @classmethod
    def of(cls, url: str) -> "ApiAddress":
        """Return the address in `url`: http or https, without credentials, query and fragment."""
        parts = urlsplit(url)
        root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        path = parts.path.rstrip("/") or "/v1"
        return cls(root, root + path)

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.root).netloc
