"""A path on this host: nothing is fetched, all is checked."""

from pathlib import Path

from ....shared.models.sources import LocalFile
from ..download.gguf_check import check_model
from ..folder.checksum import sha256_of
from ..port import FetchError
from .located import Located
from .split_names import files_of


def locate(source: LocalFile, sha256: str | None) -> Located:
    """All files of the model. Raises `FetchError`, or `OSError` that names the file."""
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
