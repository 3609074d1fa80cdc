"""A small Hugging Face hub: as much of its HTTP API as huggingface-hub uses for models."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.agent.models.file_server import FileServer, Served, file_server

COMMIT = "c" * 40


@dataclass
class SmallHub:
    """Repositories with files in Git LFS, which it sends from another address, as the hub does."""

    server: FileServer
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    def publish(
        self,
        repo: str,
        files: dict[str, bytes],
        *,
        revision: str = "main",
        commit: str = COMMIT,
        padding: Mapping[str, int] | None = None,
    ) -> None:
        """`repo` at `revision`, which is `commit`, holds `files`; `padding` as `Served` has it."""
        more = padding or {}
        siblings = [_sibling(name, data, more.get(name, 0)) for name, data in files.items()]
        info = {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "tags": []}
        for named in {revision, commit}:
            path = f"/api/models/{repo}/revision/{named}"
            self.server.paths[path] = Served(
                data=json.dumps(info).encode(), headers={"content-type": "application/json"}
            )
        for name, data in files.items():
            target = self.server.serve(
                f"/cdn/{sha256(data)}", Served(data=data, padding=more.get(name, 0))
            )
            # Another host for those who keep tokens from others.
            target = target.replace("127.0.0.1", "localhost")
            headers = {
                "x-repo-commit": commit,
                "x-linked-etag": f'"{sha256(data)}"',
                "x-linked-size": str(len(data) + more.get(name, 0)),
            }
            for named in {revision, commit}:
                served = Served(location=target, headers=headers)
                self.server.serve(f"/{repo}/resolve/{named}/{name}", served)

    def content(self, data: bytes) -> Served:
        """How `data` is served, to be made worse."""
        return self.server.paths[f"/cdn/{sha256(data)}"]

    def refuse(self, path: str, status: int, code: str) -> None:
        """Answer `path` with `status` and the hub's error `code`, for ever."""
        self.server.paths[path] = Served(statuses=[status] * 50, headers={"x-error-code": code})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sibling(name: str, data: bytes, padding: int) -> dict[str, object]:
    size = len(data) + padding
    lfs = {"sha256": sha256(data), "size": size, "pointerSize": 134}
    return {"rfilename": name, "size": size, "blobId": "b" * 40, "lfs": lfs}


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    with file_server() as server:
        yield SmallHub(server)
