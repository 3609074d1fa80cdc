"""A resolved source: files that are on this host, or files to download."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from ...shared.models.sources import LocalFile, WebFile
from ..gguf.split_files import files_of
from .downloader import RemoteFile, sha256_of
from .gguf_check import check_model
from .models_folder import PART, ModelsFolder
from .port import FetchError, OtherFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The files of a model. `paths` are the files that the engine loads, the first file first.

    `remotes` are the files to download, in the order of `paths`; empty if all files are on this
    host. `kept` are the files in the folder that must not be evicted. `others` are other
    quantisations of the model in the same repository.
    """

    paths: tuple[Path, ...]
    remotes: tuple[RemoteFile, ...] = ()
    kept: tuple[Path, ...] = ()
    others: tuple[OtherFile, ...] = ()


def locate_on_host(source: LocalFile, sha256: str | None) -> Located:
    """Return all files of the model after a check; nothing is fetched.

    Raises `FetchError`, or an `OSError` that names the file.
    """
    try:
        paths = tuple(Path(name) for name in files_of(source.path))
    except ValueError as error:
        raise FetchError("not_found", str(error), "check the source") from error
    for path in paths:
        check_model(path, str(path))
    if sha256 is not None and (found := sha256_of(paths[0])) != sha256:
        raise FetchError(
            "wrong_checksum",
            f"{paths[0]} has the SHA-256 {found}, not {sha256}",
            "check the file and the sha256 of the model",
        )
    return Located(paths=paths)


MAX_NAME = 200
"""Maximum length of a file name; file systems allow 255 bytes, and `.part` is added."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


def locate_on_web(source: WebFile, sha256: str | None, folder: ModelsFolder) -> Located:
    """Return the model's files as downloads; existing files are found by their path.

    `sha256` is the checksum of the model's first file.
    """
    parts = urlsplit(source.url)
    try:
        paths = files_of(parts.path)
    except ValueError as error:
        raise FetchError("not_found", str(error), "check the source") from error
    urls = [urlunsplit(parts._replace(path=path)) for path in paths]
    remotes = tuple(
        RemoteFile(
            url=url,
            called=urlunsplit(parts._replace(path=path, query="")),
            file=folder.web_file(urls[0], file_name(path)),
            sha256=sha256 if number == 0 else None,
        )
        for number, (url, path) in enumerate(zip(urls, paths, strict=True))
    )
    files = tuple(remote.file for remote in remotes)
    return Located(paths=files, remotes=remotes, kept=files)


def file_name(path: str) -> str:
    """Return a safe name for the file at the URL path `path`."""
    name = _UNSAFE.sub("_", unquote(path.rpartition("/")[2]))[-MAX_NAME:].lstrip(".")
    return f"{name}_" if name.endswith(PART) or not name else name
