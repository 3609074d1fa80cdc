"""Reads the headers of a model's files on this host, on the hub, or on the web."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import httpx2

from ...shared.models.sources import LocalFile, WebFile, check_http, parse_source
from ..gguf.header import GgufHeader, HeaderError, read_header
from .downloader import TIMEOUT
from .gguf_check import check_is_model
from .located import Located, locate_on_host, locate_on_web
from .models_folder import ModelsFolder
from .port import FetchError, OtherFile
from .remote_header import Budget, read_remote_header

Part = tuple[GgufHeader, int]
"""A file's header, and the bytes of the whole file."""


@dataclass(frozen=True, slots=True)
class SourceHeaders:
    """The headers of all files in order; `others` are other quantisations of the model."""

    parts: tuple[Part, ...]
    others: tuple[OtherFile, ...] = ()


def source_headers(
    source: str, folder: ModelsFolder, *, http_hosts: Collection[str] = ()
) -> SourceHeaders:
    """Return the headers of all files of the model `source`. Nothing is downloaded.

    Files in `folder` are read there. Raises `FetchError`, and an `OSError` that names the file.
    """
    try:
        check_http(source, http_hosts)
    except ValueError as error:
        raise FetchError("denied", f"the source {source} {error}") from error
    located = _located(source, folder)
    budget = Budget()
    with httpx2.Client(timeout=TIMEOUT) as client:
        numbers = range(len(located.paths))
        parts = tuple(_part(located, number, client, budget) for number in numbers)
    check_is_model(parts[0][0], source)
    return SourceHeaders(parts, located.others)


def _located(source: str, folder: ModelsFolder) -> Located:
    match parse_source(source):
        case LocalFile() as local:
            return locate_on_host(local, None)
        case WebFile() as web:
            return locate_on_web(web, None, folder)
        case on_hub:
            from . import hub  # its import takes half a second

            return hub.locate(on_hub, None, folder)


def _part(located: Located, number: int, client: httpx2.Client, budget: Budget) -> Part:
    path = located.paths[number]
    if not located.remotes or path.exists():
        return _read(path)
    return read_remote_header(client, located.remotes[number], budget)


def _read(path: Path) -> Part:
    try:
        with path.open("rb") as file:
            return read_header(file), path.stat().st_size
    except HeaderError as error:
        raise FetchError(
            "not_a_gguf", f"{path}: {error}", "name another file, or copy this file there again"
        ) from error
