from pathlib import Path

import pytest

from arriero.agent.models.models_folder import ModelsFolder
from arriero.agent.models.port import FetchError
from arriero.agent.models.source_headers import source_headers
from tests.agent.gguf.gguf_files import header
from tests.agent.models.file_server import FileServer, Served
from tests.agent.models.small_hub import SmallHub

METADATA = {"general.architecture": "llama", "llama.block_count": 2}
DATA = header(METADATA) + bytes(1_000_000)


def layers(source: str, folder: ModelsFolder, **more: tuple[str, ...]) -> list[tuple[int, int]]:
    parts = source_headers(source, folder, **more).parts
    return [(each.number("block_count") or 0, num_bytes) for each, num_bytes in parts]


def fails(source: str, folder: ModelsFolder) -> FetchError:
    with pytest.raises(FetchError) as caught:
        source_headers(source, folder)
    return caught.value


def test_a_file_of_this_host(tmp_path: Path, folder: ModelsFolder) -> None:
    (tmp_path / "m.gguf").write_bytes(DATA)
    assert layers(f"file://{tmp_path}/m.gguf", folder) == [(2, len(DATA))]
    (tmp_path / "m.gguf").write_bytes(DATA[:30])
    assert fails(f"file://{tmp_path}/m.gguf", folder).code == "not_a_gguf"
    with pytest.raises(FileNotFoundError):
        source_headers(f"file://{tmp_path}/none.gguf", folder)


def test_a_split_model_of_the_web_without_its_weights(
    server: FileServer, folder: ModelsFolder
) -> None:
    names = [f"/m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for name in names:
        server.serve(name, Served(DATA))
    assert layers(server.url + names[0], folder) == [(2, len(DATA))] * 2
    assert [asked.path for asked in server.asked] == names
    assert not list(folder.root.rglob("*.gguf"))


def test_a_quantisation_on_the_hub(hub: SmallHub, folder: ModelsFolder) -> None:
    hub.publish("org/repo", {"M-Q4_0.gguf": DATA, "M-Q8_0.gguf": b"GGUF"})
    assert layers("hf://org/repo:Q4_0", folder) == [(2, len(DATA))]
    assert not list(folder.root.rglob("*.gguf"))
    assert fails("hf://org/repo:Q6_K", folder).code == "not_found"


def test_what_is_here_already_is_read_here(server: FileServer, folder: ModelsFolder) -> None:
    url = server.url + "/m.gguf"
    file = folder.web_file(url, "m.gguf")
    file.parent.mkdir(parents=True)
    file.write_bytes(DATA)
    assert layers(url, folder) == [(2, len(DATA))]
    assert not server.asked


def test_http_is_for_hosts_that_are_allowed(folder: ModelsFolder) -> None:
    error = fails("http://files.example/m.gguf", folder)
    assert error.code == "denied"
    assert "--model-source-http files.example" in error.message


def test_an_adapter_is_no_model(tmp_path: Path, folder: ModelsFolder) -> None:
    (tmp_path / "lora.gguf").write_bytes(header({**METADATA, "general.type": "adapter"}))
    assert fails(f"file://{tmp_path}/lora.gguf", folder).code == "not_a_model"
