"""The layout of huggingface-hub's cache, read by huggingface-hub itself."""

from pathlib import Path

from huggingface_hub import scan_cache_dir, try_to_load_from_cache

from arriero.agent.models.sources.hub_cache import RepoCache

COMMIT = "c" * 40


def filled(cache: Path) -> RepoCache:
    repo = RepoCache(cache, "org/repo")
    blob = repo.blob("e1")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"GGUF")
    repo.add(COMMIT, "sub/m.gguf", blob)
    repo.remember("main", COMMIT)
    return repo


def test_huggingface_hub_finds_what_is_added(tmp_path: Path) -> None:
    repo = filled(tmp_path)
    found = try_to_load_from_cache("org/repo", "sub/m.gguf", cache_dir=tmp_path)

    assert found == str(repo.path(COMMIT, "sub/m.gguf"))
    (info,) = scan_cache_dir(tmp_path).repos
    assert info.repo_id == "org/repo"
    assert scan_cache_dir(tmp_path).warnings == []


def test_what_is_there_is_found_by_revision(tmp_path: Path) -> None:
    repo = filled(tmp_path)
    assert repo.commit_of("main") == COMMIT
    assert repo.commit_of(COMMIT) == COMMIT
    assert repo.commit_of("other") is None
    assert repo.names(COMMIT) == ["sub/m.gguf"]
    assert repo.names("d" * 40) == []
    assert repo.has(COMMIT, ["sub/m.gguf"])
    assert not repo.has(COMMIT, ["sub/m.gguf", "n.gguf"])


def test_to_add_again_or_another_content_leaves_one_link(tmp_path: Path) -> None:
    repo = filled(tmp_path)
    repo.add(COMMIT, "sub/m.gguf", repo.blob("e1"))
    other = repo.blob("e2")
    other.write_bytes(b"GGUF-2")
    repo.add(COMMIT, "sub/m.gguf", other)

    assert repo.path(COMMIT, "sub/m.gguf").read_bytes() == b"GGUF-2"
    assert [path.name for path in repo.path(COMMIT, "sub").iterdir()] == ["m.gguf"]


def test_a_file_whose_blob_was_evicted_is_not_there(tmp_path: Path) -> None:
    repo = filled(tmp_path)
    repo.blob("e1").unlink()
    assert repo.names(COMMIT) == []
    assert not repo.has(COMMIT, ["sub/m.gguf"])
