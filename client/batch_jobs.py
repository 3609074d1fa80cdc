"""Batches that the balancer runs, with files of requests and files of results.

Bodies are OpenAI's; see `docs/batches.md`.
"""

from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import aiohttp

from .http import Http, reaching

PIECE = 2**16
KEPT = 30 * 86_400
"""Seconds after which the balancer deletes an upload."""


class BatchJobs:
    """The batch calls. They raise `RequestFailed` and `Unreachable`, as the `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def upload(self, path: Path) -> dict[str, Any]:
        """Upload a file with one request a line; the answer has its `id`."""

        async def once() -> dict[str, Any]:
            with path.open("rb") as content:
                form = aiohttp.FormData()
                form.add_field("purpose", "batch")
                form.add_field("expires_after[anchor]", "created_at")
                form.add_field("expires_after[seconds]", str(KEPT))
                form.add_field("file", content, filename=path.name)
                async with self._http.open("POST", "/v1/files", form=form) as response:
                    with reaching(self._http.url):
                        file: dict[str, Any] = await response.json()
                        return file

        return await self._http.retried(once)

    async def create(self, file: str, endpoint: str, window: str = "24h") -> dict[str, Any]:
        """Create a batch of an upload with lines for `endpoint`, to run within `window`."""
        body = {"input_file_id": file, "endpoint": endpoint, "completion_window": window}
        return await self._call("POST", "/v1/batches", body)

    async def of_file(self, file: str) -> dict[str, Any] | None:
        """Return the latest batch of this upload among the caller's latest hundred."""
        found = await self._call("GET", "/v1/batches?limit=100")
        return next((each for each in found["data"] if each["input_file_id"] == file), None)

    async def get(self, id: str) -> dict[str, Any]:
        """Return the current state of a batch."""
        return await self._call("GET", f"/v1/batches/{quote(id, safe='')}")

    async def cancel(self, id: str) -> dict[str, Any]:
        """Cancel a batch; the results so far become its files."""
        return await self._call("POST", f"/v1/batches/{quote(id, safe='')}/cancel")

    async def download(self, file: str, target: BinaryIO) -> None:
        """Append the content of a file to `target`, in pieces. Not retried once it has begun."""
        path = f"/v1/files/{quote(file, safe='')}/content"
        async with self._http.open("GET", path) as response:
            with reaching(self._http.url):
                async for piece in response.content.iter_chunked(PIECE):
                    target.write(piece)

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._call("DELETE", f"/v1/files/{quote(file, safe='')}")

    async def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer: dict[str, Any]
        answer, _ = await self._http.call(method, path, body)
        return answer
