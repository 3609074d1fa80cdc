"""Files from a web address: which URLs a model takes, and where they are kept."""

import re
from urllib.parse import unquote, urlsplit, urlunsplit

from ....shared.models.sources import WebFile
from ..download.remote_file import RemoteFile
from ..folder.models_folder import PART, ModelsFolder
from ..port import FetchError
from .located import Located
from .split_names import files_of

MAX_NAME = 200
"""Longest file name; file systems allow 255 bytes, and `.part` is added."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


def locate(source: WebFile, sha256: str | None, folder: ModelsFolder) -> Located:
    """The model's files as downloads; those that are here are found by their place.

    `sha256` is that of the model's first file.
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
    """A safe name for the file at the URL path `path`."""
    name = _UNSAFE.sub("_", unquote(path.rpartition("/")[2]))[-MAX_NAME:].lstrip(".")
    return f"{name}_" if name.endswith(PART) or not name else name
