"""Servers on loopback, and folders."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from arriero.agent.models.models_folder import ModelsFolder
from tests.agent.models.file_server import FileServer, file_server
from tests.agent.models.small_disk import NoNamespaces, small_disk
from tests.agent.models.small_hub import SmallHub, small_hub


@pytest.fixture
def folder(tmp_path: Path) -> ModelsFolder:
    folder = ModelsFolder(tmp_path / "models")
    folder.create()
    return folder


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A real disk of 3 MiB, or one with the mount options that the test asks for."""
    options = getattr(request, "param", "size=3m")
    try:
        with small_disk(tmp_path / "disk", options) as disk:
            yield disk
    except NoNamespaces as error:
        pytest.skip(f"no file system can be mounted: {error}")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """huggingface-hub in this process asks it; other caches and tokens are out of sight.

    huggingface-hub reads its environment as it is imported, so its constants are set.
    """
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with small_hub() as hub:
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "own-cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        yield hub
