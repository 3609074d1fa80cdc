"""The folder of stored prompts: round trips, limits, and files that are not what they should be."""

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.cache_folder import (
    PROMPT_SUFFIX,
    UNFINISHED_SUFFIX,
    CacheFolder,
    write_whole,
)
from arriero.agent.engine.prompt_store.prompt_store import Ignored, PromptStore
from arriero.agent.engine.prompt_store.stored_prompt import (
    ModelIdentity,
    Origin,
    State,
    StoredPrompt,
    pack,
)
from arriero.shared.inference import Notice
from tests.agent.stored import whole

ORIGIN = Origin(
    model=ModelIdentity(architecture="qwen3", parameters=7, size_bytes=14, digest="abc"),
    engine="llama.cpp 1",
    cache="f16",
)
PROMPT = whole((1, 2, 3), b"state")
SIZE = sum(map(len, pack("a", ORIGIN, PROMPT)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def store_in(folder: Path, *, limit: int = 100 * SIZE, origin: Origin = ORIGIN) -> PromptStore:
    return PromptStore(CacheFolder(folder, limit_bytes=limit), origin=origin)


def age(path: Path, seconds: int) -> None:
    """Let `path` have been used so many seconds after the epoch."""
    os.utime(path, (seconds, seconds))


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_what_was_saved_is_loaded(folder: Path) -> None:
    store = store_in(folder)
    assert store.load("a") is None
    assert store.save("a", PROMPT) is None
    assert store.load("a") == PROMPT
    assert store_in(folder).load("a") == PROMPT
    assert store.load("b") is None


def test_what_is_ignored_is_for_the_client() -> None:
    assert Ignored("torn").notice == Notice("prompt_cache", "torn")


def test_a_key_is_overwritten(folder: Path) -> None:
    store = store_in(folder)
    store.save("a", PROMPT)
    other = whole((9,), b"other")
    assert store.save("a", other) is None
    assert store.load("a") == other
    assert only_file(folder).suffix == PROMPT_SUFFIX


@pytest.mark.parametrize("key", ["../../etc/passwd", "a/b", ".", "\0", "é" * 256, "CON"])
def test_any_text_is_a_key(folder: Path, key: str) -> None:
    store = store_in(folder)
    assert store.save(key, PROMPT) is None
    assert store.load(key) == PROMPT
    assert only_file(folder).parent == folder


def test_prompts_are_private(folder: Path) -> None:
    store_in(folder).save("a", PROMPT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600


# ---- what is wrong with a file is said, and nothing else happens


def ignored(store: PromptStore, key: str, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    outcome = store.load(key)
    assert isinstance(outcome, Ignored)
    assert [record.getMessage() for record in caplog.records] == [outcome.reason]
    return outcome.reason


def test_a_foreign_file_is_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_in(folder).save("a", PROMPT)
    name = only_file(folder).name
    other = replace(ORIGIN, model=replace(ORIGIN.model, digest="other"))
    reason = ignored(store_in(folder, origin=other), "a", caplog)
    assert reason == (
        f"prompt cache file {name} was saved with another model (qwen3); it is ignored"
    )
    assert store_in(folder, origin=other).save("a", PROMPT) is None
    assert store_in(folder, origin=other).load("a") == PROMPT


@pytest.mark.parametrize("size", [0, 5, SIZE // 2, SIZE - 1])
def test_a_torn_file_is_ignored(folder: Path, size: int, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(folder)
    store.save("a", PROMPT)
    os.truncate(only_file(folder), size)
    assert "damaged" in ignored(store, "a", caplog)


def test_a_copied_file_is_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(folder)
    store.save("a", PROMPT)
    content = only_file(folder).read_bytes()
    only_file(folder).unlink()
    store.save("b", PROMPT)
    only_file(folder).write_bytes(content)
    assert "belongs to another key" in ignored(store, "b", caplog)


def test_an_oversized_file_is_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_in(folder).save("a", PROMPT)
    assert f"has {SIZE} bytes" in ignored(store_in(folder, limit=SIZE - 1), "a", caplog)


def test_what_cannot_be_read_is_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(folder)
    store.save("a", PROMPT)
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    assert "cannot be read: Is a directory" in ignored(store, "a", caplog)


def test_a_folder_that_went_away_is_only_a_miss(folder: Path) -> None:
    store = store_in(folder)
    folder.rmdir()
    assert store.load("a") is None
    outcome = store.save("a", PROMPT)
    assert isinstance(outcome, Ignored)
    assert "cannot be saved: No such file or directory" in outcome.reason


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        store_in(tmp_path / "file" / "cache")


# ---- the limit


def total(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_least_recently_used_go_first(folder: Path) -> None:
    store = store_in(folder, limit=3 * SIZE)
    for number, key in enumerate("abc"):
        before = set(folder.iterdir())
        store.save(key, PROMPT)
        (new,) = set(folder.iterdir()) - before
        age(new, 1000 + number)
    assert store.load("a") == PROMPT  # and that makes `b` the oldest
    store.save("d", PROMPT)
    assert total(folder) == 3 * SIZE
    assert store.load("b") is None
    assert [store.load(key) for key in "acd"] == [PROMPT] * 3


def test_overwriting_removes_nothing_else(folder: Path) -> None:
    store = store_in(folder, limit=2 * SIZE)
    for key in "abab":
        store.save(key, PROMPT)
    assert store.load("a") == store.load("b") == PROMPT


def test_one_over_the_limit_is_not_saved(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(folder, limit=2 * SIZE)
    store.save("a", PROMPT)
    outcome = store.save("b", whole((1,), bytes(2 * SIZE)))
    assert isinstance(outcome, Ignored)
    assert "--cache-limit" in outcome.reason
    assert [record.getMessage() for record in caplog.records] == [outcome.reason]
    assert store.load("a") == PROMPT
    assert store.load("b") is None


def test_what_was_left_unfinished_is_counted_and_goes(folder: Path) -> None:
    store = store_in(folder, limit=2 * SIZE)
    left = folder / f"x{UNFINISHED_SUFFIX}"
    left.write_bytes(bytes(10 * SIZE))
    age(left, 1000)
    store.save("a", PROMPT)
    assert not left.exists()


def test_what_others_keep_in_the_folder_is_left_alone(folder: Path) -> None:
    store = store_in(folder, limit=SIZE)
    (folder / "notes.txt").write_bytes(bytes(10 * SIZE))
    store.save("a", PROMPT)
    store.save("b", PROMPT)
    assert (folder / "notes.txt").exists()
    assert store.load("b") == PROMPT


def test_nothing_is_left_of_a_save_that_failed(folder: Path) -> None:
    store = store_in(folder)
    store.save("a", PROMPT)
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    assert isinstance(store.save("a", PROMPT), Ignored)
    assert only_file(folder) == path


def test_agents_that_share_a_folder_see_whole_prompts_only(folder: Path) -> None:
    prompts = [whole((number,), bytes([number]) * 50_000) for number in range(4)]
    stores = [store_in(folder, limit=500_000) for _ in prompts]
    strange: list[object] = []

    def work(store: PromptStore, prompt: StoredPrompt) -> None:
        for number in range(25):
            key = f"key {number % 3}"
            found = [store.save(key, prompt), store.load(key)]
            strange.extend(each for each in found if each is not None and each not in prompts)

    threads = [
        threading.Thread(target=work, args=each) for each in zip(stores, prompts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert strange == []
    assert len(list(folder.iterdir())) == 3


def test_what_another_agent_saved_meanwhile_makes_room_too(folder: Path) -> None:
    """Both look for room before either writes: the later one has to look again."""
    other = store_in(folder, limit=2 * SIZE)

    def write(path: Path, parts: tuple[State, ...]) -> None:
        other.save("b", PROMPT)
        write_whole(path, parts)

    store_in(folder, limit=2 * SIZE).save("c", PROMPT)
    age(only_file(folder), 1000)
    both = CacheFolder(folder, limit_bytes=2 * SIZE, write=write)
    store = PromptStore(both, origin=ORIGIN)
    assert store.save("a", PROMPT) is None
    assert total(folder) == 2 * SIZE
    assert store.load("c") is None
    assert store.load("a") == store.load("b") == PROMPT


def test_a_key_is_another_in_another_scope(folder: Path) -> None:
    store = store_in(folder)
    mine = StoredPrompt(Prompt((1, 2, 3), scope="mine"), PROMPT.pieces)
    assert store.save("a", mine) is None
    assert store.load("a") is None
    assert store.load("a", "theirs") is None
    loaded = store.load("a", "mine")
    assert loaded == mine
    assert isinstance(loaded, StoredPrompt) and loaded.prompt.keys == mine.prompt.keys
