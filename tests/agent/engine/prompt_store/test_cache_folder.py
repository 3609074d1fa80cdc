"""The folder of `--cache-dir`: whole files or none, its limit, and what a kill leaves."""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store import cache_folder
from arriero.agent.engine.prompt_store.cache_folder import (
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    PROMPT_SUFFIX,
    UNFINISHED_SUFFIX,
    CacheFile,
    CacheFolder,
    FullError,
    write_whole,
)
from arriero.agent.engine.prompt_store.stored_prompt import State

LIMIT = 6400


def folder_at(path: Path, limit: int = LIMIT) -> CacheFolder:
    return CacheFolder(path, limit_bytes=limit)


def put(folder: CacheFolder, name: str, size: int, used_at: int) -> Path:
    path = folder.path / name
    path.write_bytes(bytes(size))
    os.utime(path, ns=(used_at, used_at))
    return path


def block(folder: CacheFolder, name: str) -> Path:
    return folder.path / f"{name}{BLOCK_SUFFIX}"


def total(folder: CacheFolder) -> int:
    return sum(file.size for file in folder.files())


def test_it_lists_what_counts(tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "cache")
    put(folder, f"a{PROMPT_SUFFIX}", 1, 5)
    put(folder, f"b{BLOCK_SUFFIX}", 2, 6)
    put(folder, f"c{UNFINISHED_SUFFIX}", 3, 7)
    put(folder, "notes.txt", 4, 8)
    assert sorted(folder.files(), key=lambda file: file.name) == [
        CacheFile(5, f"a{PROMPT_SUFFIX}", 1),
        CacheFile(6, f"b{BLOCK_SUFFIX}", 2),
        CacheFile(7, f"c{UNFINISHED_SUFFIX}", 3),
    ]


def test_what_is_added_pushes_out_what_was_not_used_for_longest(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    oldest = put(folder, f"a{BLOCK_SUFFIX}", 3000, 1)
    newer = put(folder, f"b{BLOCK_SUFFIX}", 3000, 2)
    files = folder.add(block(folder, "c"), (bytes(1000),))
    assert files == [CacheFile(2, newer.name, 3000)]
    assert not oldest.exists() and newer.exists() and block(folder, "c").exists()


def test_blocks_go_for_prompts_and_never_prompts_for_blocks(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    prompt = put(folder, f"a{PROMPT_SUFFIX}", 3000, 1)
    newer = put(folder, f"b{BLOCK_SUFFIX}", 3000, 2)
    folder.add(block(folder, "c"), (bytes(1000),))
    assert prompt.exists() and not newer.exists()
    folder.save(other := folder.path / f"d{PROMPT_SUFFIX}", (bytes(3000),))
    assert prompt.exists() and other.exists() and not block(folder, "c").exists()
    with pytest.raises(FullError):
        folder_at(tmp_path).add(block(folder, "e"), (bytes(1000),))
    assert prompt.exists() and other.exists()
    folder.save(folder.path / f"f{PROMPT_SUFFIX}", (bytes(3000),))
    assert not prompt.exists(), "among prompts the least recently used one goes"


def test_it_looks_again_only_when_the_room_that_was_free_is_used_up(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    assert folder.add(block(folder, "a"), (bytes(100),)) == []
    looks = [folder.add(block(folder, str(n)), (bytes(100),)) is not None for n in range(60)]
    assert 0 < sum(looks) < 20
    assert total(folder) <= LIMIT


def test_agents_that_add_to_one_folder_stay_within_its_limit(tmp_path: Path) -> None:
    folders = [folder_at(tmp_path) for _ in range(4)]
    for number in range(200):
        one = folders[number % 4]
        one.add(block(one, str(number)), (bytes(100),))
        assert total(one) <= LIMIT


def test_all_that_is_in_the_folder_counts_and_names_are_listed(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    suffixes = (BLOCK_SUFFIX, CHECKPOINT_SUFFIX, PROMPT_SUFFIX)
    for number, suffix in enumerate(suffixes):
        put(folder, f"a{suffix}", LIMIT // 3, number)
    put(folder, "a.txt", LIMIT, 0)
    folder.save(block(folder, "b"), (bytes(LIMIT // 2),))
    assert folder.names(CHECKPOINT_SUFFIX) == []
    assert folder.names(PROMPT_SUFFIX) == [f"a{PROMPT_SUFFIX}"]
    assert total(folder) <= LIMIT


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_FILES", 3)
    folder = folder_at(tmp_path)
    for number in range(6):
        folder.save(put(folder, f"{number}{BLOCK_SUFFIX}", 0, number), (b"x",))
    assert len(list(folder.files())) == 3


def test_a_kill_in_the_middle_leaves_nothing_that_counts(tmp_path: Path) -> None:
    """A process that is killed runs no code any more: the part that it wrote stays, unlocked."""

    def killed(path: Path, parts: tuple[State, ...]) -> None:
        left = path.with_suffix(UNFINISHED_SUFFIX)
        left.write_bytes(parts[0])
        raise KeyboardInterrupt

    folder = CacheFolder(tmp_path, limit_bytes=LIMIT, write=killed)
    with pytest.raises(KeyboardInterrupt):
        folder.add(block(folder, "a"), (b"half", b"rest"))
    assert [path.suffix for path in tmp_path.iterdir()] == [UNFINISHED_SUFFIX]
    assert folder_at(tmp_path).collect_leftovers() == 1
    assert list(tmp_path.iterdir()) == []


def test_what_another_agent_is_writing_is_not_left_over(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    path = put(folder, f"a{UNFINISHED_SUFFIX}", 10, 1)
    with path.open("rb") as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        assert folder.collect_leftovers() == 0
        assert path.exists()
    assert folder.collect_leftovers() == 1


class Watched(tuple[State, ...]):
    """The parts of a file; between two of them, `look` is called."""

    look: Callable[[], None]

    def __iter__(self) -> Iterator[State]:
        for part in super().__iter__():
            yield part
            self.look()


def test_a_file_is_locked_while_it_is_written(tmp_path: Path) -> None:
    folder, seen = folder_at(tmp_path), list[int]()
    parts = Watched((b"first", b"second"))
    parts.look = lambda: seen.append(folder.collect_leftovers())
    write_whole(block(folder, "a"), parts)
    assert seen == [0, 0]
    assert block(folder, "a").read_bytes() == b"firstsecond"
