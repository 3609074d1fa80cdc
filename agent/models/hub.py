"""The Hugging Face hub: the contents of a repository, and the addresses of its files.

huggingface-hub provides the hub's answers, with its token, endpoint and offline mode. Its cache is
read, too. `downloader` fetches the bytes, since a download of huggingface-hub starts again when
its process ends. The files are stored in the layout of huggingface-hub's cache.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import ModelInfo, RepoSibling

from ...shared.log import context
from ...shared.models.sources import HubFile, HubQuantisation, is_relative_path
from ..gguf.split_files import files_of
from .downloader import TOKEN_HINT, RemoteFile, sha256_of
from .file_names import other_quantisations, pick_file, quantisation_of
from .located import Located
from .models_folder import ModelsFolder, in_words
from .port import FetchError, OtherFile

logger = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Maximum wait for the hub's answer, in seconds."""

MAX_OTHERS = 64
"""Maximum other quantisations listed; the largest repositories have about 40."""

HubSource = HubFile | HubQuantisation


_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_ID = re.compile(r"(?!\.)[\w.-]{1,128}(?<!\.part)", re.ASCII)
"""Matches a commit or a blob's id. An id that ends in `.part` would name a partial blob."""

_SHOWN = 100
"""Maximum characters of the hub's text in an error."""


class RepoCache:
    """One repository's folder in a cache.

    `snapshots/COMMIT/FILE` are links to `blobs/ETAG`; `refs/REVISION` contains a commit. Methods
    raise `FetchError` if a name from the hub leads out of its folder.
    """

    def __init__(self, cache: Path, repo: str) -> None:
        self.root = cache / f"models--{repo.replace('/', '--')}"

    def commit_of(self, revision: str) -> str | None:
        """Return the commit that `revision` last had, if known."""
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            return _inside(self.root / "refs", revision).read_text().strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
            return None

    def names(self, commit: str) -> list[str]:
        """Return the GGUF files of `commit` that are here."""
        snapshot = self._snapshot(commit)
        found = (path for path in snapshot.rglob("*.gguf") if path.is_file())
        return [path.relative_to(snapshot).as_posix() for path in found]

    def has(self, commit: str, names: Iterable[str]) -> bool:
        return all(self.path(commit, name).is_file() for name in names)

    def path(self, commit: str, name: str) -> Path:
        return _inside(self._snapshot(commit), name)

    def blob(self, etag: str) -> Path:
        return self.root / "blobs" / _checked_id(etag)

    def blob_of(self, file: Path) -> Path:
        """Return the blob that a file of a commit links to."""
        return self.blob(file.readlink().name) if file.is_symlink() else file

    def add(self, commit: str, name: str, blob: Path) -> None:
        """Make `blob` the file `name` of `commit`. Raises `OSError`."""
        link = self.path(commit, name)
        if link.is_file() and link.resolve() == blob.resolve():
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(f"{link.name}.{os.getpid()}.link")
        beside.unlink(missing_ok=True)
        beside.symlink_to(os.path.relpath(blob, link.parent))
        beside.replace(link)

    def remember(self, revision: str, commit: str) -> None:
        """Record that `revision` is at `commit`. Raises `OSError`."""
        if revision == commit:
            return
        ref = _inside(self.root / "refs", revision)
        ref.parent.mkdir(parents=True, exist_ok=True)
        beside = ref.with_name(f"{ref.name}.{os.getpid()}.ref")
        beside.write_text(commit)
        beside.replace(ref)

    def _snapshot(self, commit: str) -> Path:
        return self.root / "snapshots" / _checked_id(commit)


def _checked_id(said: str) -> str:
    """Return a commit or a blob's id from the hub if its form is valid. Raises `FetchError`."""
    if not _ID.fullmatch(said):
        raise _misled(said)
    return said


def _inside(folder: Path, said: str) -> Path:
    """Return the path of the name `said` in `folder`, which came from the hub. Raises
    `FetchError`.
    """
    if not is_relative_path(said):
        raise _misled(said)
    return folder / said


def _misled(said: str) -> FetchError:
    return FetchError(
        "denied",
        f"the hub names {said[:_SHOWN]!r}, which is no path within a folder",
        "check HF_ENDPOINT: the server there may not be the hub",
    )


def locate(source: HubSource, sha256: str | None, folder: ModelsFolder) -> Located:
    """Return the files of `source`: paths, and downloads for missing files.

    Files in `folder` or in the cache of the Hugging Face hub are not downloaded. If the hub cannot
    be asked (offline mode, or no network), only those files are returned. Raises `FetchError`.
    """
    try:
        info = _ask(source)
    except FetchError as error:
        found = _cached(source, folder) if error.code == "unreachable" else None
        if found is None or not _is_right(found.paths[0], sha256):
            raise
        logger.info("the hub is not asked; a cached model is used", extra=context(why=str(error)))
        return found
    others = tuple(_others(source, {each.rfilename: each for each in info.siblings or ()}))
    return replace(_of(source, info, sha256, folder), others=others[:MAX_OTHERS])


def finish(source: HubSource, located: Located) -> None:
    """Give finished downloads their names in the cache. Raises `OSError`."""
    for remote, path in zip(located.remotes, located.paths, strict=False):
        cache = RepoCache(remote.file.parent.parent.parent, source.repo)
        commit, *parts = path.relative_to(cache.root / "snapshots").parts
        cache.add(commit, "/".join(parts), remote.file)
        cache.remember(source.revision, commit)


def _ask(source: HubSource) -> ModelInfo:
    if constants.is_offline_mode():
        raise _unreachable(source, "HF_HUB_OFFLINE is set")
    try:
        return HfApi().model_info(
            source.repo, revision=source.revision, files_metadata=True, timeout=TIMEOUT
        )
    except (httpx2.TransportError, httpx2.InvalidURL, OfflineModeIsEnabled) as error:
        raise _unreachable(source, str(error) or type(error).__name__) from error
    except HFValidationError as error:
        raise FetchError("not_found", str(error), "check the source") from error
    except HfHubHTTPError as error:
        raise _refused(source, error) from error


def _of(source: HubSource, info: ModelInfo, sha256: str | None, folder: ModelsFolder) -> Located:
    siblings = {file.rfilename: file for file in info.siblings or ()}
    names = _names(source, list(siblings))
    files = [siblings[name] for name in names]
    commit = info.sha or source.revision
    _check_sha256(source, files[0], sha256)
    own = RepoCache(Path(constants.HF_HUB_CACHE), source.repo)
    if own.has(commit, names):
        return _here(own, commit, names, is_kept=False)
    cache = RepoCache(folder.hub, source.repo)
    if cache.has(commit, names):
        cache.remember(source.revision, commit)
        return _here(cache, commit, names)
    for file in files:
        _check_size(source, file, folder)
    remotes = tuple(
        _remote(source, commit, file, cache, sha256 if file is files[0] else None) for file in files
    )
    return Located(
        paths=tuple(cache.path(commit, name) for name in names),
        remotes=remotes,
        kept=tuple(remote.file for remote in remotes),
    )


def _names(source: HubSource, there: Sequence[str]) -> tuple[str, ...]:
    """Return the files of the model that `source` names, among the names `there`."""
    match source:
        case HubFile(file=file):
            first = file
        case HubQuantisation(quantisation=quantisation):
            first = pick_file(there, quantisation, source.repo)
        case _:
            assert_never(source)
    try:
        names = files_of(first)
    except ValueError as error:
        raise FetchError("not_found", str(error), "check the source") from error
    if missing := [name for name in names if name not in there]:
        raise FetchError(
            "not_found",
            f"{source.repo} at {source.revision} has no file {missing[0]}",
            _similar(missing[0], there),
        )
    return names


def _others(source: HubSource, there: Mapping[str, RepoSibling]) -> Iterator[OtherFile]:
    """Yield the same model in other quantisations, if the hub knows their sizes."""
    for first in other_quantisations(_names(source, list(there))[0], there):
        sizes = [there[name].size for name in files_of(first) if name in there]
        if len(sizes) < len(files_of(first)) or None in sizes:
            continue
        quantisation = quantisation_of(first, there)
        which = f"/{first}" if quantisation is None else f":{quantisation}"
        revision = "" if source.revision == "main" else f"@{source.revision}"
        yield OtherFile(f"hf://{source.repo}{which}{revision}", sum(size or 0 for size in sizes))


def _similar(name: str, there: Iterable[str]) -> str:
    models = sorted(each for each in there if each.endswith(".gguf"))[:20]
    return f"it has {', '.join(models)}" if models else "it has no GGUF files at all"


def _check_sha256(source: HubSource, file: RepoSibling, sha256: str | None) -> None:
    """Raise `FetchError` if the hub's checksum differs from `sha256`."""
    if sha256 is not None and file.lfs and file.lfs.sha256 != sha256:
        raise FetchError(
            "wrong_checksum",
            f"{file.rfilename} of {source.repo} has the SHA-256 {file.lfs.sha256}, not {sha256}",
            "check the source, its revision and its sha256",
        )


def _remote(
    source: HubSource, commit: str, file: RepoSibling, cache: RepoCache, sha256: str | None
) -> RemoteFile:
    """Return `file` as a download, checked by the hub's checksum, or else by `sha256`."""
    name = file.rfilename
    own_sha256 = file.lfs.sha256 if file.lfs else None
    etag = own_sha256 or file.blob_id
    if etag is None:
        raise FetchError(
            "unreachable", f"the hub has no checksum or id for {name}", "check HF_ENDPOINT"
        )
    return RemoteFile(
        url=hf_hub_url(source.repo, name, revision=commit),
        called=f"hf://{source.repo}/{name}",
        file=cache.blob(etag),
        headers=_headers(),
        size=file.size,
        sha256=own_sha256 or sha256,
        is_content_named=True,
        is_on_hub=True,
    )


def _headers() -> dict[str, str]:
    """Return the user's token, unless huggingface-hub's settings forbid sending it implicitly."""
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _cached(source: HubSource, folder: ModelsFolder) -> Located | None:
    for root in (folder.hub, Path(constants.HF_HUB_CACHE)):
        cache = RepoCache(root, source.repo)
        commit = cache.commit_of(source.revision)
        if commit is None:
            continue
        try:
            names = _names(source, cache.names(commit))
        except FetchError:
            continue
        return _here(cache, commit, names, is_kept=root == folder.hub)
    return None


def _here(cache: RepoCache, commit: str, names: Iterable[str], *, is_kept: bool = True) -> Located:
    """Return files in a cache. Only files in the agent's folder are protected from eviction."""
    paths = tuple(cache.path(commit, name) for name in names)
    return Located(paths=paths, kept=tuple(map(cache.blob_of, paths)) if is_kept else ())


def _check_size(source: HubSource, file: RepoSibling, folder: ModelsFolder) -> None:
    if file.size is not None and file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise FetchError(
            "too_large",
            f"{file.rfilename} has {in_words(file.size)}, more than the hub sends over HTTP",
            "take a model that is split into files, or bring it there yourself: "
            f"hf download {source.repo} {file.rfilename} --revision {source.revision} "
            f"--cache-dir {folder.hub}",
        )


def _is_right(path: Path, sha256: str | None) -> bool:
    """Return whether `path` has this SHA-256; a blob with a SHA-256 has it as its name."""
    return sha256 is None or path.resolve().name == sha256 or sha256_of(path) == sha256


def _unreachable(source: HubSource, why: str) -> FetchError:
    return FetchError(
        "unreachable",
        f"the hub cannot be asked for {source.repo}: {why}",
        "check the host's network, proxy (HTTPS_PROXY) and HF_ENDPOINT, or copy the files there "
        "yourself (docs/models.md, offline hosts)",
    )


def _refused(source: HubSource, error: HfHubHTTPError) -> FetchError:
    status = error.response.status_code
    if isinstance(error, GatedRepoError) or status == 403:
        return FetchError("gated", f"the hub does not let the agent read {source.repo}", TOKEN_HINT)
    if isinstance(error, RepositoryNotFoundError):
        return FetchError(
            "not_found",
            f"the hub has no model {source.repo}, or does not show it to the agent",
            "check its name; for a private one set HF_TOKEN on the agent's host",
        )
    if isinstance(error, RevisionNotFoundError):
        return FetchError(
            "not_found",
            f"{source.repo} has no revision {source.revision}",
            "check the name after the @",
        )
    if status == 401:
        return FetchError("gated", f"the hub refuses the token for {source.repo}", TOKEN_HINT)
    return _unreachable(source, f"it answers with status {status}")
