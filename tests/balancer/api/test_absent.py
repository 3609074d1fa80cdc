"""What is not here says why."""

import pytest

from arriero.balancer.api.absent import absent
from arriero.shared.errors import NotFound, NotSupported


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/realtime", "no voice sessions"),
        ("/v1/realtime/sessions", "no voice sessions"),
        ("/v1/audio/speech", "no sound"),
        ("/v1/images/generations", "no images"),
        ("/v1/imagesque", "there is nothing at /v1/imagesque"),
        ("/x/{path}", "there is nothing at /x/{path}"),
    ],
)
def test_what_is_not_found(path: str, words: str) -> None:
    error = absent(path)
    assert isinstance(error, NotFound)
    assert words in error.message
    assert path in error.message


@pytest.mark.parametrize("call", ["pull", "push", "create", "copy", "delete", "blobs/sha256:0"])
def test_models_come_with_the_desired_state(call: str) -> None:
    error = absent(f"/api/{call}")
    assert isinstance(error, NotSupported)
    assert "desired state" in error.message


def test_long_paths_are_cut() -> None:
    assert len(absent("/" + "x" * 5000).message) < 300
