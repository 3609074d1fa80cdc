"""Files from a web address."""

import pytest

from arriero.agent.models.folder.models_folder import ModelsFolder
from arriero.agent.models.sources.web import MAX_NAME, file_name, locate
from arriero.shared.models.sources import WebFile


def test_a_url_is_one_download_with_a_place_of_its_own(folder: ModelsFolder) -> None:
    located = locate(WebFile("https://host/a/m.gguf?sig=secret"), "a" * 64, folder)
    (remote,) = located.remotes
    other = locate(WebFile("https://host/b/m.gguf"), None, folder)

    assert remote.url == "https://host/a/m.gguf?sig=secret"
    assert remote.called == "https://host/a/m.gguf"
    assert remote.sha256 == "a" * 64
    assert remote.file.name == "m.gguf"
    assert located.paths == located.kept == (remote.file,)
    assert other.paths[0] != remote.file


def test_a_split_model_is_several_beside_each_other(folder: ModelsFolder) -> None:
    located = locate(WebFile("https://host/m-00002-of-00002.gguf?k=1"), "a" * 64, folder)
    assert [remote.url for remote in located.remotes] == [
        "https://host/m-00001-of-00002.gguf?k=1",
        "https://host/m-00002-of-00002.gguf?k=1",
    ]
    assert len({path.parent for path in located.paths}) == 1
    assert [remote.sha256 for remote in located.remotes] == ["a" * 64, None]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/m.gguf", "m.gguf"),
        ("/a/m%2F..%2Fx.gguf", "m_.._x.gguf"),
        ("/a/", "_"),
        ("/..", "_"),
        ("/.hidden", "hidden"),
        ("/a%00b", "a_b"),
        ("/m.gguf.part", "m.gguf.part_"),
        ("/" + "x" * 1000, "x" * MAX_NAME),
    ],
)
def test_a_name_is_safe(path: str, name: str) -> None:
    assert file_name(path) == name
