"""The management port: the agents, the requests, the desired models."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import StreamReader

from .errors import ArrieroError, Unreachable
from .http import Http, reaching
from .sse import SseParser


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The desired models, and the version (`etag`) that a change refers to."""

    state: dict[str, Any]
    etag: str


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """`snapshot` (everything), `delta` (changes) or `throughput`: `docs/api/management.md`."""

    name: str
    data: dict[str, Any]


class Management:
    """Calls of the management port. Bodies are described in `docs/api/management.md`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def about(self) -> Any:
        """Return the balancer's version, its ports, and its own `issues`."""
        return await self._get("/api/v1/about")

    async def agents(self) -> list[dict[str, Any]]:
        """Return all connected agents."""
        return list((await self._get("/api/v1/agents"))["agents"])

    async def agent(self, id: str) -> dict[str, Any]:
        """Return one agent."""
        return dict(await self._get(f"/api/v1/agents/{_quoted(id)}"))

    async def drain(self, agent: str, *, deadline: str | float | None = None) -> None:
        """Give the agent no more requests; running ones may go on until `deadline` (`30s`)."""
        body = {} if deadline is None else {"deadline": deadline}
        await self._http.call("POST", f"/api/v1/agents/{_quoted(agent)}/drain", body)

    async def resume(self, agent: str) -> None:
        """Give the agent requests again."""
        await self._http.call("POST", f"/api/v1/agents/{_quoted(agent)}/resume", {})

    async def reload(self, agent: str) -> None:
        """Make the agent reload its model."""
        await self._http.call("POST", f"/api/v1/agents/{_quoted(agent)}/reload", {})

    async def agent_log(self, agent: str) -> list[dict[str, Any]]:
        """Return the last lines of the agent's log: `at`, `level` and `text`, the oldest first."""
        return list((await self._get(f"/api/v1/agents/{_quoted(agent)}/log"))["lines"])

    async def hosts(self) -> list[dict[str, Any]]:
        """Return all hosts that are or were connected, and why they left."""
        return list((await self._get("/api/v1/hosts"))["hosts"])

    async def forget_host(self, name: str) -> None:
        """Forget a host that is not connected."""
        await self._http.call("DELETE", f"/api/v1/hosts/{_quoted(name)}")

    async def diary(self, **choice: str | int) -> list[dict[str, Any]]:
        """Return the events of the fleet, newest first.

        `since` (such as `12h`) leaves out older events; `limit` is the maximum number of events.
        """
        return list((await self._get("/api/v1/diary", choice))["entries"])

    async def requests(self, **choice: str | int) -> list[dict[str, Any]]:
        """Return the requests that have not ended, or those in another state.

        `state` (`queued`, `running`, `ended`), `model` and `caller` filter the requests; `limit` is
        the maximum number of requests.
        """
        return list((await self._get("/api/v1/requests", choice))["requests"])

    async def cancel(self, request: str) -> None:
        """Cancel a request; its client keeps the answer so far."""
        await self._http.call("DELETE", f"/api/v1/requests/{_quoted(request)}")

    async def models(self) -> list[dict[str, Any]]:
        """Return the desired and the served models, each with its status."""
        return list((await self._get("/api/v1/models"))["models"])

    async def model_fit(self, source: str, **choice: str | int) -> Any:
        """Return what each agent would choose for the model of `source`, without a download.

        Without `slots` and `context_size`, each agent uses its own settings.
        """
        return await self._get("/api/v1/models/fit", {"source": source, **choice})

    async def desired_state(self) -> DesiredState:
        """Return the desired models."""
        body, headers = await self._http.call("GET", "/api/v1/desired-state")
        return DesiredState(body, headers.get("ETag", ""))

    async def wish(
        self, state: Mapping[str, Any], *, etag: str | None = None, dry_run: bool = False
    ) -> Any:
        """Replace the desired models; with `etag`, fail with 409 if they have changed since.

        With `dry_run` the state does not change; the answer says what would change on each agent.
        """
        headers = {"If-Match": etag} if etag else {}
        params = {"dry_run": "true"} if dry_run else {}
        path = "/api/v1/desired-state"
        body, _ = await self._http.call("PUT", path, dict(state), headers=headers, params=params)
        return body

    async def history(self, **choice: str | float) -> Any:
        """Return throughput, queue, latencies and errors over time.

        The parameters `since`, `step`, `by` and `name` are described in `docs/api/management.md`.
        """
        return await self._get("/api/v1/history", choice)

    async def usage(self, **choice: str) -> Any:
        """Return requests, errors and tokens of callers.

        `since` and `until` (a day, or `7d`) and `by` (`caller`, `model`, `day`, or several
        separated by commas) choose.
        """
        return await self._get("/api/v1/usage", choice)

    async def keys(self) -> list[dict[str, Any]]:
        """Return all access keys, without their secrets."""
        return list((await self._get("/api/v1/keys"))["keys"])

    async def create_key(self, name: str, role: str, **more: Any) -> dict[str, Any]:
        """Create an access key; only this answer has its secret, as `key`.

        `more`: `expires` (`90d`), `models`, `labels`, `requests_per_minute` and others.
        """
        return await self._change("POST", "/api/v1/keys", {"name": name, "role": role, **more})

    async def revoke_key(self, name: str) -> dict[str, Any]:
        """Revoke a key, and end its open requests."""
        return await self._change("DELETE", f"/api/v1/keys/{_quoted(name)}")

    async def rotate_key(self, name: str) -> dict[str, Any]:
        """Give a key a new secret, returned as `key`; the old secret ends."""
        return await self._change("POST", f"/api/v1/keys/{_quoted(name)}/rotate", {})

    def events(self) -> AsyncGenerator[FleetEvent, None]:
        """Yield the changes of the fleet, also after a lost connection, without an end.

        Closing the iterator, as `contextlib.aclosing` does, closes its connection.
        """
        return self._events("/api/v1/events")

    def diary_events(self, **choice: str | int) -> AsyncGenerator[FleetEvent, None]:
        """Yield the events of `diary`, oldest first; then new events, as `events` does.

        Each is an event `entry`; an event `alive` says that nothing happened for a while.
        """
        return self._events("/api/v1/diary", choice)

    def agent_log_events(self, agent: str) -> AsyncGenerator[FleetEvent, None]:
        """Yield the last lines of the agent's log, then new lines, in events `lines`.

        The iteration continues after a lost connection until the agent is gone (`RequestFailed`).
        """
        return self._events(f"/api/v1/agents/{_quoted(agent)}/log/events")

    async def _events(
        self, path: str, choice: Mapping[str, str | int] | None = None
    ) -> AsyncGenerator[FleetEvent, None]:
        params = {name: str(value) for name, value in (choice or {}).items()}
        last_id: str | None = None
        attempt = 0
        while True:
            try:
                headers = {"Accept": "text/event-stream"}
                if last_id:
                    headers["Last-Event-ID"] = last_id
                async with self._http.open("GET", path, headers=headers, params=params) as response:
                    parser = SseParser()
                    while line := await self._line(response.content):
                        event = parser.line(line.decode().rstrip("\r\n"))
                        if event is not None:
                            attempt, last_id = 0, event.id or last_id
                            yield FleetEvent(event.name, json.loads(event.data))
                raise Unreachable("the balancer closed the events")
            except ArrieroError as error:
                pause = self._http.retries.pause(attempt, error, random.random())
                if pause is None:
                    raise
                attempt += 1
                await asyncio.sleep(pause)

    async def _line(self, lines: StreamReader) -> bytes:
        with reaching(self._http.url):
            return await lines.readline()

    async def _change(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer, _ = await self._http.call(method, path, body)
        return dict(answer)

    async def _get(self, path: str, choice: Mapping[str, str | float] | None = None) -> Any:
        params = {name: str(value) for name, value in (choice or {}).items()}
        body, _ = await self._http.call("GET", path, params=params)
        return body


def _quoted(id: str) -> str:
    return quote(id, safe="")
