"""What a source comes to on this host: files that are here, or files to download."""

from dataclasses import dataclass
from pathlib import Path

from ..download.remote_file import RemoteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """`paths` are what the engine loads, the first file first.

    `remotes` are to be downloaded, in the order of `paths`; none where all files are here.
    `kept` are the files in the folder that must not be evicted meanwhile.
    """

    paths: tuple[Path, ...]
    remotes: tuple[RemoteFile, ...] = ()
    kept: tuple[Path, ...] = ()
