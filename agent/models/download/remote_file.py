"""One file to download: from where, to where, and how to tell that it is right."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """`called` names it to people, without what a URL may hide. `file` is its place in the folder.

    `size` and `sha256` as far as they are known before the download. `is_content_named`: `file` is
    named after its content, so one that is there is the right one.
    """

    url: str
    called: str
    file: Path
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int | None = None
    sha256: str | None = None
    is_content_named: bool = False
    is_on_hub: bool = False
