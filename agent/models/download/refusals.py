"""What a server's refusal, or the system's, means to people and what they can do about it."""

import errno
import os

from ..port import FetchError
from .remote_file import RemoteFile

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

TOKEN_HINT = (
    "accept the model's conditions on its page, then set HF_TOKEN on the agent's host to a token "
    "that may read it"
)


def refused(remote: RemoteFile, status: int) -> FetchError:
    """What `status`, which no retry mends, says of `remote`."""
    answer = f"{remote.called}: the server answers with status {status}"
    if status in (401, 403) and remote.is_on_hub:
        return FetchError("gated", answer, TOKEN_HINT)
    if status in (401, 403):
        return FetchError(
            "denied", answer, "the agent sends no credentials; use a URL that needs none"
        )
    if status in (404, 410):
        return FetchError("not_found", answer, "check the source")
    return FetchError("unreachable", answer, "check the source, and what the server's log says")


def broken(error: OSError, folder: os.PathLike[str]) -> FetchError:
    """What an error of the system means for files in `folder`."""
    where = error.filename or folder
    said = error.strerror or str(error)
    if error.errno in _FULL:
        return FetchError(
            "disk_full",
            f"{where}: {said}",
            "free space there, or choose another --models-dir",
        )
    if error.errno == errno.EFBIG:
        return FetchError(
            "too_large",
            f"{where}: {said}",
            "the file system or a limit of the process takes no file of this size; choose "
            "another --models-dir",
        )
    if error.errno in _DENIED:
        return FetchError(
            "denied", f"{where}: {said}", "let the agent's user write there, or read the file"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return FetchError("not_found", f"{where}: {said}", "check the path on the agent's host")
    return FetchError("fetch_failed", f"{where}: {said}")
