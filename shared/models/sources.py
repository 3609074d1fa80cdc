"""The source of a model's file: the hub, a web address, or a path on the agent's host.

| source | means |
| --- | --- |
| `hf://org/repo/folder/file.gguf@revision` | one file of a repository on the Hugging Face hub |
| `hf://org/repo:Q4_K_M@revision` | the file of that repository in this quantisation |
| `https://host/path/file.gguf` | a download; `http://` as `check_http` says |
| `file:///path/file.gguf` | a path on the agent's host |

Without `@revision` the hub's branch `main` is used. For a split model (`…-00001-of-00003.gguf`) the
source names the first file; the other files are in the same folder.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from ..strict import ListOf

MAX_SOURCE = 2048
"""Maximum characters of a source."""

MAX_PART = 255
"""Maximum bytes of a file's or folder's name."""

MAX_HTTP_HOSTS = 64

_HOST = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253})(?::\d{1,5})?", re.ASCII)

_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_REVISION = r"(?:@(?P<revision>[\w./-]{1,200}))?"
_HUB_FILE = re.compile(
    rf"hf://(?P<repo>{_PART}/{_PART})/(?P<file>[^@\x00-\x1f]+\.gguf){_REVISION}", re.ASCII
)
_HUB_QUANTISATION = re.compile(
    rf"hf://(?P<repo>{_PART}/{_PART}):(?P<quantisation>\w{{1,32}}){_REVISION}", re.ASCII
)


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository on the Hugging Face hub. `repo` is `org/name`."""

    repo: str
    file: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class HubQuantisation:
    """The file of a hub repository with this quantisation, such as `Q4_K_M`, in its name."""

    repo: str
    quantisation: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file to download over HTTP."""

    url: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """An absolute path on the agent's host."""

    path: str


ModelSource = HubFile | HubQuantisation | WebFile | LocalFile


def parse_source(text: str) -> ModelSource:
    """Parse a source. Raises `ValueError` with the valid forms."""
    scheme, separator, _ = text.partition("://")
    readers = {"hf": _hub, "https": _web, "http": _web, "file": _local}
    if not separator or scheme not in readers:
        raise ValueError(
            "must be a source such as hf://org/repo/file.gguf, hf://org/repo:Q4_K_M, "
            "https://host/file.gguf or file:///path/file.gguf"
        )
    return readers[scheme](text)


def _hub(text: str) -> HubFile | HubQuantisation:
    found = _HUB_QUANTISATION.fullmatch(text) or _HUB_FILE.fullmatch(text)
    parts = found.groupdict() if found else {}
    revision = parts.get("revision") or "main"
    if not parts or not all(map(is_relative_path, (parts.get("file", "m.gguf"), revision))):
        raise ValueError(
            "must be hf://org/repo/file.gguf or hf://org/repo:QUANTISATION, "
            "both with an @revision if wanted"
        )
    if quantisation := parts.get("quantisation"):
        return HubQuantisation(parts["repo"], quantisation, revision)
    return HubFile(parts["repo"], parts["file"], revision)


def is_relative_path(text: str) -> bool:
    """Return whether `text` is a relative path that stays in its folder."""
    return all(
        part not in ("", ".", "..") and part.isprintable() and len(part.encode()) <= MAX_PART
        for part in text.split("/")
    )


def _web(text: str) -> WebFile:
    problem = "must be a URL such as https://host/path/file.gguf"
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0
    except ValueError as error:
        raise ValueError(problem) from error
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if not parts.hostname or not has_port or not is_plain or parts.fragment:
        raise ValueError(problem)
    if "@" in parts.netloc:
        raise ValueError(f"{problem}, without credentials: they would be shown and logged")
    return WebFile(text)


def http_host(text: str) -> str:
    """Check and return a host without TLS in lower case, with or without a port.

    Raises `ValueError`.
    """
    host = text.lower()
    if not _HOST.fullmatch(host):
        raise ValueError("must be a host such as files.lan or files.lan:8080, without http://")
    return host


HttpHosts = Annotated[
    ListOf[Annotated[str, AfterValidator(http_host)]], Field(max_length=MAX_HTTP_HOSTS)
]


def check_http(source: str, allowed: Collection[str]) -> None:
    """Refuse a download without TLS, unless it is from loopback or from one of `allowed`.

    `allowed` are results of `http_host`: `files.lan` allows any port, `files.lan:8080` only that
    port. Raises `ValueError`.
    """
    parts = urlsplit(source)
    if parts.scheme != "http" or is_loopback(parts.hostname):
        return
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else f"{parts.hostname}"
    if not {host, f"{host}:{parts.port or 80}"} & set(allowed):
        raise ValueError(
            "must begin with https://; http:// is only for loopback addresses and for hosts that "
            f"the balancer is started with: --model-source-http {host}"
        )


def is_loopback(host: str | None) -> bool:
    """Return whether a URL's host is this machine, judged by its text alone."""
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _local(text: str) -> LocalFile:
    path = unquote(text.removeprefix("file://"))
    if not path.startswith("/") or path.endswith("/") or not path.isprintable():
        raise ValueError("must be file:/// and an absolute path, such as file:///models/m.gguf")
    return LocalFile(path)


def _checked(text: str) -> str:
    parse_source(text)
    return text


Source = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_SOURCE), AfterValidator(_checked)
]
"""The checked text of a source."""
