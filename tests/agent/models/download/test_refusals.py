"""What refusals mean to people."""

import errno
from pathlib import Path

import pytest

from arriero.agent.models.download.refusals import broken, refused
from arriero.agent.models.download.remote_file import RemoteFile

WEB = RemoteFile(url="https://a/m.gguf?sig=secret", called="https://a/m.gguf", file=Path("m"))
HUB = RemoteFile(url="https://hub/m", called="hf://org/repo/m", file=Path("m"), is_on_hub=True)


@pytest.mark.parametrize(
    ("remote", "status", "code"),
    [
        (HUB, 401, "gated"),
        (HUB, 403, "gated"),
        (HUB, 404, "not_found"),
        (WEB, 401, "denied"),
        (WEB, 403, "denied"),
        (WEB, 404, "not_found"),
        (WEB, 410, "not_found"),
        (WEB, 400, "unreachable"),
    ],
)
def test_a_status_has_a_code_and_a_hint(remote: RemoteFile, status: int, code: str) -> None:
    error = refused(remote, status)
    assert error.code == code
    assert str(status) in error.message
    assert error.hint
    assert "secret" not in error.message


def test_the_hint_for_a_gated_model_names_the_token() -> None:
    assert "HF_TOKEN" in refused(HUB, 401).hint


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EFBIG, "too_large"),
        (errno.EACCES, "denied"),
        (errno.EROFS, "denied"),
        (errno.ENOENT, "not_found"),
        (errno.EIO, "fetch_failed"),
    ],
)
def test_an_error_of_the_system_has_a_code_and_names_the_file(number: int, code: str) -> None:
    error = broken(OSError(number, "said so", "/models/m.gguf"), Path("/models"))
    assert error.code == code
    assert error.message == "/models/m.gguf: said so"


def test_an_error_that_names_no_file_names_the_folder() -> None:
    assert broken(OSError(errno.ENOSPC, "full"), Path("/models")).message == "/models: full"
