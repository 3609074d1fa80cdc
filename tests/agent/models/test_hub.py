"""huggingface-hub itself against a small hub: what a source means, and what goes wrong."""

from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir, try_to_load_from_cache

from arriero.agent.models import hub as hub_source
from arriero.agent.models.hub import HubSource, RepoCache, locate
from arriero.agent.models.models_folder import ModelsFolder
from arriero.agent.models.port import FetchError, OtherFile
from arriero.shared.models.sources import HubFile, HubQuantisation
from tests.agent.models.file_server import model
from tests.agent.models.small_hub import COMMIT, SmallHub, sha256

REPO = "org/repo"
SMALL, LARGE = model(1000, seed=1), model(2000, seed=2)
INFO = f"/api/models/{REPO}/revision/main"


@pytest.fixture
def filled(hub: SmallHub) -> SmallHub:
    hub.publish(REPO, {"M-Q4_0.gguf": SMALL, "M-Q8_0.gguf": LARGE, "README.md": b"#"})
    return hub


def refused(source: HubSource, folder: ModelsFolder, sha: str | None = None) -> FetchError:
    with pytest.raises(FetchError) as caught:
        locate(source, sha, folder)
    return caught.value


def test_a_quantisation_becomes_a_download_with_all_that_the_hub_knows(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    located = locate(HubQuantisation(REPO, "Q4_0"), None, folder)
    (remote,) = located.remotes

    assert remote.url == f"{filled.url}/{REPO}/resolve/{COMMIT}/M-Q4_0.gguf"
    assert (remote.size, remote.sha256) == (len(SMALL), sha256(SMALL))
    assert remote.file == RepoCache(folder.hub, REPO).blob(sha256(SMALL))
    assert located.paths == (RepoCache(folder.hub, REPO).path(COMMIT, "M-Q4_0.gguf"),)
    assert located.kept == (remote.file,)


def test_the_users_token_goes_to_the_hub(
    filled: SmallHub, folder: ModelsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (remote,) = locate(HubFile(REPO, "M-Q4_0.gguf"), None, folder).remotes

    assert filled.server.asked[0].headers["authorization"] == "Bearer hf_secret"
    assert remote.headers == {"authorization": "Bearer hf_secret"}
    assert "hf_secret" not in repr(remote)


def test_a_split_model_takes_all_its_files(hub: SmallHub, folder: ModelsFolder) -> None:
    names = [f"Q8_0/M-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    hub.publish(REPO, {names[0]: SMALL, names[1]: LARGE})
    located = locate(HubQuantisation(REPO, "Q8_0"), None, folder)
    assert [path.name for path in located.paths] == [name[5:] for name in names]

    hub.publish(REPO, {names[0]: SMALL})
    assert "00002-of-00002" in refused(HubQuantisation(REPO, "Q8_0"), folder).message


def test_other_quantisations_are_named_with_their_sizes(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    located = locate(HubQuantisation(REPO, "Q8_0"), None, folder)
    assert located.others == (OtherFile(f"hf://{REPO}:Q4_0", len(SMALL)),)
    filled.publish(REPO, {"M-Q4_0.gguf": SMALL, "N-Q4_0.gguf": SMALL, "M-Q8_0.gguf": LARGE})
    filled.publish(
        REPO, {"M-Q4_0.gguf": SMALL, "N-Q4_0.gguf": SMALL, "M-Q8_0.gguf": LARGE}, revision="v1"
    )
    located = locate(HubFile(REPO, "M-Q8_0.gguf", "v1"), None, folder)
    assert located.others == (OtherFile(f"hf://{REPO}/M-Q4_0.gguf@v1", len(SMALL)),)


def test_another_quantisation_is_as_large_as_all_its_files(
    hub: SmallHub, folder: ModelsFolder
) -> None:
    names = [f"M-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    hub.publish(REPO, {names[0]: SMALL, names[1]: LARGE, "M-Q4_0.gguf": SMALL})
    source = HubQuantisation(REPO, "Q4_0")
    assert [each.bytes for each in locate(source, None, folder).others] == [3000]
    hub.publish(REPO, {names[0]: SMALL, "M-Q4_0.gguf": SMALL})
    assert locate(source, None, folder).others == (), "a part is missing"


def test_a_file_that_is_not_there_is_told_with_those_that_are(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    error = refused(HubFile(REPO, "nope.gguf"), folder)
    assert error.code == "not_found"
    assert error.hint == "it has M-Q4_0.gguf, M-Q8_0.gguf"


def test_another_checksum_is_told_before_the_download(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    error = refused(HubFile(REPO, "M-Q4_0.gguf"), folder, "0" * 64)
    assert error.code == "wrong_checksum"
    assert locate(HubFile(REPO, "M-Q4_0.gguf"), sha256(SMALL), folder).remotes


@pytest.mark.parametrize(
    ("status", "code", "expected", "hint"),
    [
        (401, "RepoNotFound", "not_found", "HF_TOKEN"),
        (404, "RepoNotFound", "not_found", "HF_TOKEN"),
        (403, "GatedRepo", "gated", "HF_TOKEN"),
        (404, "RevisionNotFound", "not_found", "after the @"),
        (500, "", "unreachable", "HF_ENDPOINT"),
    ],
)
def test_a_refusal_is_told_with_what_to_do(
    filled: SmallHub,
    folder: ModelsFolder,
    status: int,
    code: str,
    expected: str,
    hint: str,
) -> None:
    filled.refuse(INFO, status, code)
    error = refused(HubQuantisation(REPO, "Q4_0"), folder)
    assert error.code == expected
    assert hint in error.hint


def test_what_huggingface_hub_has_in_its_own_cache_is_used_where_it_is(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    theirs = hf_hub_download(REPO, "M-Q4_0.gguf", cache_dir=constants.HF_HUB_CACHE)
    located = locate(HubQuantisation(REPO, "Q4_0"), None, folder)

    assert located.paths == (Path(theirs),)
    assert located.remotes == located.kept == ()


def test_without_the_hub_what_is_in_a_cache_is_used(
    filled: SmallHub, folder: ModelsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HubQuantisation(REPO, "Q4_0")
    path = hf_hub_download(REPO, "M-Q4_0.gguf", cache_dir=folder.hub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    located = locate(source, None, folder)

    assert located.paths == (Path(path),)
    assert located.remotes == ()
    assert located.kept == (Path(path).resolve(),)
    assert locate(source, sha256(SMALL), folder) == located
    assert refused(source, folder, "0" * 64).code == "unreachable"
    offline = refused(HubQuantisation(REPO, "Q8_0"), folder)
    assert offline.code == "unreachable"
    assert "HF_HUB_OFFLINE" in offline.message


def test_what_is_here_of_a_folder_behind_a_link_is_kept_there(
    filled: SmallHub, folder: ModelsFolder, tmp_path: Path
) -> None:
    hf_hub_download(REPO, "M-Q4_0.gguf", cache_dir=folder.hub)
    link = tmp_path / "link"
    link.symlink_to(folder.root, target_is_directory=True)
    linked = ModelsFolder(link)
    located = locate(HubQuantisation(REPO, "Q4_0"), None, linked)
    [kept] = located.kept
    assert kept.is_relative_to(link)
    assert kept.read_bytes() == SMALL
    linked.use(kept).release()


def test_when_the_hub_is_down_what_is_in_a_cache_is_used(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    hf_hub_download(REPO, "M-Q4_0.gguf", cache_dir=folder.hub)
    filled.refuse(INFO, 503, "")
    assert locate(HubQuantisation(REPO, "Q4_0"), None, folder).kept


def test_finished_downloads_are_found_by_huggingface_hub(
    filled: SmallHub, folder: ModelsFolder
) -> None:
    source = HubFile(REPO, "M-Q4_0.gguf")
    located = locate(source, None, folder)
    located.remotes[0].file.parent.mkdir(parents=True)
    located.remotes[0].file.write_bytes(SMALL)
    hub_source.finish(source, located)
    found = hf_hub_download(REPO, "M-Q4_0.gguf", cache_dir=folder.hub, local_files_only=True)

    assert Path(found) == located.paths[0]
    assert Path(found).read_bytes() == SMALL


def test_a_file_too_large_for_http_is_told_with_another_way(
    filled: SmallHub, folder: ModelsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HubFile(REPO, "M-Q8_0.gguf")
    with monkeypatch.context() as patch:
        patch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", len(LARGE) - 1)
        error = refused(source, folder)
    assert error.code == "too_large"
    assert f"hf download {REPO} M-Q8_0.gguf --revision main --cache-dir {folder.hub}" in error.hint

    path = hf_hub_download(REPO, "M-Q8_0.gguf", cache_dir=folder.hub)
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", len(LARGE) - 1)
    located = locate(source, None, folder)
    assert (located.paths, located.remotes) == ((Path(path),), ())
    assert located.kept == (Path(path).resolve(),)


def filled_cache(cache: Path) -> RepoCache:
    repo = RepoCache(cache, "org/repo")
    blob = repo.blob("e1")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"GGUF")
    repo.add(COMMIT, "sub/m.gguf", blob)
    repo.remember("main", COMMIT)
    return repo


def test_huggingface_hub_finds_what_is_added(tmp_path: Path) -> None:
    repo = filled_cache(tmp_path)
    found = try_to_load_from_cache("org/repo", "sub/m.gguf", cache_dir=tmp_path)

    assert found == str(repo.path(COMMIT, "sub/m.gguf"))
    (info,) = scan_cache_dir(tmp_path).repos
    assert info.repo_id == "org/repo"
    assert scan_cache_dir(tmp_path).warnings == []


def test_what_is_there_is_found_by_revision(tmp_path: Path) -> None:
    repo = filled_cache(tmp_path)
    assert repo.commit_of("main") == COMMIT
    assert repo.commit_of(COMMIT) == COMMIT
    assert repo.commit_of("other") is None
    assert repo.names(COMMIT) == ["sub/m.gguf"]
    assert repo.names("d" * 40) == []
    assert repo.has(COMMIT, ["sub/m.gguf"])
    assert not repo.has(COMMIT, ["sub/m.gguf", "n.gguf"])


def test_to_add_again_or_another_content_leaves_one_link(tmp_path: Path) -> None:
    repo = filled_cache(tmp_path)
    repo.add(COMMIT, "sub/m.gguf", repo.blob("e1"))
    other = repo.blob("e2")
    other.write_bytes(b"GGUF-2")
    repo.add(COMMIT, "sub/m.gguf", other)

    assert repo.path(COMMIT, "sub/m.gguf").read_bytes() == b"GGUF-2"
    assert [path.name for path in repo.path(COMMIT, "sub").iterdir()] == ["m.gguf"]


def test_a_file_whose_blob_was_evicted_is_not_there(tmp_path: Path) -> None:
    repo = filled_cache(tmp_path)
    repo.blob("e1").unlink()
    assert repo.names(COMMIT) == []
    assert not repo.has(COMMIT, ["sub/m.gguf"])
