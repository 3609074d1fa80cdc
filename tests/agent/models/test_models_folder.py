"""The folder of model files: its limit, its locks, what it evicts."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.models import models_folder
from arriero.agent.models.models_folder import (
    ModelsFolder,
    NoRoomError,
    Record,
    StoredFile,
    in_words,
    part_of,
    read_record,
    reserve,
    to_evict,
    whole_of,
    write_record,
)
from arriero.agent.models.port import FetchError


@pytest.fixture
def limited(tmp_path: Path) -> ModelsFolder:
    folder = ModelsFolder(tmp_path / "models", limit=1000)
    folder.create()
    return folder


def keep(folder: ModelsFolder, name: str, size: int, used_at: float) -> Path:
    """A file that was downloaded from the web and last used at `used_at`."""
    file = folder.web_file(f"https://host/{name}", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    lock = folder.use(file)
    os.utime(lock.path, times=(used_at, used_at))
    lock.release()
    return file


def new(folder: ModelsFolder, size: int) -> dict[Path, int]:
    """A file of `size` bytes that is to be downloaded."""
    return {folder.web_file("https://host/wanted", "wanted.gguf"): size}


def test_without_a_limit_nothing_is_evicted(folder: ModelsFolder) -> None:
    file = keep(folder, "a.gguf", 600, 1)
    folder.make_room(new(folder, 10**6))
    assert file.exists()


def test_the_least_recently_used_makes_room(limited: ModelsFolder) -> None:
    newer, old = keep(limited, "new.gguf", 400, 200), keep(limited, "old.gguf", 400, 100)
    limited.make_room(new(limited, 300))

    assert newer.exists()
    assert not old.exists()
    assert len(list((limited.root / "locks").glob("*.use"))) == 1


def test_what_is_used_is_never_evicted_and_the_error_says_what_to_do(
    limited: ModelsFolder,
) -> None:
    used, free = keep(limited, "used.gguf", 600, 100), keep(limited, "free.gguf", 300, 200)
    with limited.use(used):
        limited.make_room(new(limited, 400))
        assert used.exists()
        assert not free.exists()
        with pytest.raises(FetchError) as caught:
            limited.make_room(new(limited, 500))
    assert caught.value.code == "too_large"
    assert "100 bytes are missing" in caught.value.message
    assert "--models-limit" in caught.value.hint
    assert used.exists()


def test_a_download_of_others_counts_with_all_it_will_take(limited: ModelsFolder) -> None:
    file = keep(limited, "a.gguf", 100, 100)
    file.rename(part_of(file))
    limited.write_record(file, Record(total=900))
    with limited.use(file):
        with pytest.raises(FetchError) as caught:
            limited.make_room(new(limited, 200))
        assert caught.value.code == "too_large"
        assert limited.room() == 100
    limited.make_room(new(limited, 950))
    assert not part_of(file).exists()


def test_what_has_arrived_of_the_file_itself_counts_once(limited: ModelsFolder) -> None:
    file = keep(limited, "a.gguf", 600, 100)
    file.rename(part_of(file))
    limited.write_record(file, Record(total=1000))
    with limited.use(file):
        limited.make_room({file: 1000})
        with pytest.raises(FetchError):
            limited.make_room({file: 1001})


def test_an_evicted_blob_leaves_no_link_in_the_hubs_cache(limited: ModelsFolder) -> None:
    blob = limited.hub / "models--org--repo" / "blobs" / "abc"
    link = limited.hub / "models--org--repo" / "snapshots" / "c1" / "m.gguf"
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 800)
    link.symlink_to("../../blobs/abc")
    other = link.with_name("other.gguf")
    other.symlink_to("../../blobs/def")
    limited.make_room(new(limited, 300))

    assert not blob.exists()
    assert not link.is_symlink()
    assert other.is_symlink()


def test_a_full_disk_is_told_before_the_download(
    folder: ModelsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10_000, 9_000, 1_000)
    monkeypatch.setattr(models_folder.shutil, "disk_usage", lambda _: usage)
    folder.make_room(new(folder, 900))
    with pytest.raises(FetchError) as caught:
        folder.make_room(new(folder, 901))
    assert caught.value.code == "disk_full"
    assert "901 bytes do not fit" in caught.value.message
    assert folder.room() == 900


def test_a_little_of_the_disk_stays_free() -> None:
    assert reserve(10**6) == 10**4
    assert reserve(10**15) == 2**30


def test_room_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert ModelsFolder(tmp_path / "no" / "models", limit=1000).room() == 1000
    assert ModelsFolder(tmp_path / "no" / "models").room() > 0


def test_names_of_parts() -> None:
    assert whole_of(part_of(Path("/m/a.gguf"))) == Path("/m/a.gguf")
    assert whole_of(Path("/m/a.gguf")) == Path("/m/a.gguf")


@pytest.mark.parametrize(
    ("size", "words"),
    [(5, "5 bytes"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**51, "2048.0 TiB")],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert in_words(size) == words


def stored(name: str, size: int, last_used: float, is_used: bool = False) -> StoredFile:
    return StoredFile(name=name, bytes=size, last_used=last_used, is_used=is_used)


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    files = [stored("new", 10, 3), stored("old", 10, 1), stored("middle", 10, 2)]

    assert [file.name for file in to_evict(files, 11)] == ["old", "middle"]
    assert to_evict(files, 0) == []
    assert to_evict(files, -5) == []


def test_what_is_used_stays_however_old() -> None:
    files = [stored("used", 100, 0, is_used=True), stored("free", 10, 5)]

    assert [file.name for file in to_evict(files, 10)] == ["free"]
    with pytest.raises(NoRoomError) as caught:
        to_evict(files, 50)
    assert caught.value.missing == 40


FILES = st.lists(
    st.builds(stored, st.just("f"), st.integers(0, 100), st.floats(0, 100), st.booleans())
)


@given(FILES, st.integers(-10, 500))
def test_what_is_evicted_is_enough_and_unused(files: list[StoredFile], missing: int) -> None:
    try:
        evicted = to_evict(files, missing)
    except NoRoomError as error:
        assert sum(file.bytes for file in files if not file.is_used) == missing - error.missing
        return
    assert sum(file.bytes for file in evicted) >= missing
    assert not any(file.is_used for file in evicted)
    assert not evicted or sum(file.bytes for file in evicted[:-1]) < missing


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = Record(validator='"v1"', total=7, sha256="a" * 64, size=7)
    write_record(tmp_path / "record", record)
    assert read_record(tmp_path / "record") == record


@pytest.mark.parametrize("torn", [b"", b'{"total": 1', b"[]", b'{"total": "x"}', b"\xff"])
def test_a_torn_record_says_nothing(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "record").write_bytes(torn)
    assert read_record(tmp_path / "record") == Record()


def test_without_a_record_nothing_is_known(tmp_path: Path) -> None:
    assert read_record(tmp_path / "record") == Record()
