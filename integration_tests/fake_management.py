"""A management port of made-up agents: for pages of fleets that nobody could start for a test.

All that it serves is of the types that the balancer declares. What is not fails: a test's event at
once, and an answer with 500 and a line in the log.
"""

import asyncio
import json
from collections import Counter
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from arriero.balancer.management import page
from arriero.balancer.management.answer_types import (
    About,
    AgentLog,
    Balancers,
    Delta,
    PastDevices,
    Snapshot,
    ThroughputPoint,
)
from arriero.balancer.management.diary_routes import Forgotten, Hosts
from arriero.balancer.management.history.history_routes import EndedRequests, History
from arriero.balancer.management.history.usage_routes import UsageReport
from arriero.balancer.management.job_routes import BatchView, BatchViews
from arriero.balancer.management.key_routes import Key, Keys, NewKey
from arriero.balancer.management.serializers import CLOCKS
from arriero.balancer.management.session_routes import SessionState
from arriero.balancer.management.steering.routes import DesiredModels, DryRun, Models, Steered
from arriero.balancer.store.records import DiaryEntry

TICK = 0.2
"""Seconds between two events of throughput."""

INFERENCE_PORT = 8061
"""What the page is told; nothing listens there."""

MODEL = {
    "name": "demo",
    "architecture": "llama",
    "parameters": 260_000,
    "size_bytes": 1_000_000,
    "context_size": 2048,
    "tasks": ["generate"],
}
USAGE_COLUMNS = ("day", "caller", "model")
USAGE_COUNTS = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens")
CELLS = {"total": 8192, "used": 2048, "kept": 1024, "parked": 0}
STATISTICS = {
    "decode_tokens_per_second": 80.0,
    "prefill_tokens_per_second": 900.0,
    "throughput_tokens_per_second": 60.0,
    "average_sequences": 2.0,
    "sequences": {"running": 2, "waiting": 0},
    "cells": CELLS,
    "disk_cache": {"bytes": 3_000_000, "read_tokens_total": 2560},
    "cached_tokens_total": 100,
    "computed_tokens_total": 300,
    "completion_tokens_total": 500,
    "drafted_tokens_total": 10,
    "accepted_tokens_total": 5,
    "preemptions_total": 1,
    "stalls_total": 2,
    "stall_seconds_total": 0.5,
    "busy_seconds_total": 30.0,
}
ISSUE = {"code": "disk_full", "message": "no room for the file", "hint": "free 3 GiB"}
DOWNLOAD = {
    "file": "models/qwen.gguf",
    "bytes": 1 << 30,
    "total": 2 << 30,
    "bytes_per_second": 1e7,
    "seconds_left": 107.0,
}
FACTS = {
    "memory": 16 << 30,
    "devices": [{"name": "CUDA0", "description": "NVIDIA L4", "memory": 8 << 30}],
    "cores": 8,
    "disk_free": 50 << 30,
    "platform": "Linux",
    "is_pinned": False,
}


def agent(number: int, **more: Any) -> dict[str, Any]:
    """One agent; `more` are fields in place of the usual ones."""
    slots = {"total": 4, "busy": number % 5}
    state, model = more.get("state", "ready"), more.get("model", MODEL)
    served = model and {
        "name": model["name"],
        "state": state,
        "slots": slots,
        "tasks": model["tasks"],
        "memory_needed": 1 << 30,
        "average_sequences": None,
    }
    return {
        "id": f"agent-{number}",
        "name": f"host-{number:03}",
        "labels": {"zone": "north" if number % 2 else "south"},
        "version": "1.0",
        "state": state,
        "slots": slots,
        "model": model,
        "models": [served] if served else [],
        "issues": [],
        "download": None,
        "work": None,
        "facts": FACTS,
        "devices": [],
        "throughput": {"tokens_total": 0, "tokens_per_second": None},
        "statistics": STATISTICS,
        "connected_seconds": 4000.0 + number,
        **more,
    }


def request(number: int, state: str, agent_id: str | None = None, **more: Any) -> dict[str, Any]:
    """One request; the lower its number, the older."""
    return {
        "id": f"request-{number}",
        "state": state,
        "model": "demo",
        "agent": agent_id,
        "waited_seconds": 1.0,
        "age_seconds": 100.0 - number,
        "num_tokens": number,
        "priority": 0,
        "priority_class": "default",
        "caller": "anonymous",
        "moves": 0,
        "position": None,
        "balancer": None,
        **more,
    }


def listed(name: str, **more: Any) -> dict[str, Any]:
    """One model as it is listed."""
    return {
        "name": name,
        "aliases": [],
        "status": "loaded",
        "progress": None,
        "agents": [],
        "slots": {"total": 0, "busy": 0},
        "waiting": 0,
        "issues": [],
        **more,
    }


def batch(number: int, status: str, **more: Any) -> dict[str, Any]:
    """One batch; the lower its number, the older."""
    return {
        "id": f"batch_{number:032}",
        "caller": "anonymous",
        "endpoint": "/v1/chat/completions",
        "status": status,
        "created_at": 1_700_000_000.0 + number,
        "expires_at": 1_700_086_400.0,
        "total": 200,
        "completed": 50,
        "failed": 0,
        **dict.fromkeys(("lines_per_second", "seconds_left", "output_file_id", "error_file_id")),
        "failure": None,
        **more,
    }


SECRET = "ark_" + 43 * "x"


def access_key(name: str, role: str, **more: Any) -> dict[str, Any]:
    """One key without limits; `expires` is passed over."""
    more.pop("expires", None)
    limits = ("requests_per_minute", "tokens_per_minute", "max_concurrent", "max_queued")
    times = ("expires_at", "revoked_at", "rotated_at", "last_used_at")
    return {
        "name": name,
        "role": role,
        "is_valid": True,
        "priority": "interactive",
        "created_at": 1_700_000_000.0,
        **dict.fromkeys(("models", "labels", *limits, "max_tokens", "default_priority", *times)),
        **more,
    }


def device(
    name: str, used: int, total: int, *, models: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    """A device; bytes of it are `used`, and those of `models` are theirs."""
    memory = {"total": total, "free": total - used, "used": used, "others": None}
    lie = [{"name": each, "bytes": size} for each, size in (models or {}).items()]
    kind = "cpu" if name == "CPU" else "gpu"
    figures: dict[str, Any] = {"use": None, "temperature": None, **more}
    return {"name": name, "kind": kind, "memory": memory, "models": lie, **figures}


def log_line(number: int, level: str, text: str) -> dict[str, Any]:
    """A line of an agent's log."""
    return {"number": number, "at": 1_700_000_000.0 + number, "level": level, "text": text}


def history(
    times: list[int], step: int = 5, *, since: int | None = None, failed: bool = True
) -> dict[str, Any]:
    """An answer of `/api/v1/history` with one line: the same at every time but the second, at
    which nothing was generated and, if it `failed`, requests were refused."""
    latencies = [None if index == 1 else 100.0 + index for index in range(len(times))]
    shares = {"p50": latencies, "p90": latencies, "p99": latencies}
    refused = [3 if index == 1 else 0 for index in range(len(times))]
    line = {
        "name": None,
        "tokens_per_second": [0.0 if each is None else 40.0 for each in latencies],
        "prompt_tokens_per_second": [0.0 for _ in times],
        "cached_tokens_per_second": [0.0 for _ in times],
        "ended": {"stop": [2 for _ in times], **({"queue_full": refused} if failed else {})},
        "first_token_ms": shares,
        "between_tokens_ms": shares,
    }
    since = times[0] if since is None else since
    return {"since": since, "step": step, "by": None, "times": times, "levels": [], "lines": [line]}


class FakeManagement:
    """Serves the page, and what its pages ask for; keeps what they changed."""

    def __init__(self) -> None:
        self.management = ""
        self.agents: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.usage: list[dict[str, Any]] | None = []
        self.batches: list[dict[str, Any]] = []
        self.models: list[dict[str, Any]] = []
        self.hosts: list[dict[str, Any]] = []
        self.diary: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {"models": []}
        self.revision = 1
        self.plan: list[dict[str, Any]] = []
        self.lacking: list[dict[str, Any]] = []
        self.is_lasting = True
        self.troubles: list[dict[str, Any]] = []
        self.problems: list[dict[str, str]] = []
        self.steered: list[tuple[str, str]] = []
        self.generated: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.devices: list[dict[str, Any]] = []
        self.history: dict[str, Any] | None = history([1_700_000_000])
        self.num_moves = 0
        self.asked: list[dict[str, str]] = []
        self.public_url: str | None = None
        self.role: str | None = None
        self.is_login_needed = False
        self.keys: list[dict[str, Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.log: list[dict[str, Any]] | None = []
        self._feeds: list[web.StreamResponse] = []
        self.nobody_reads_logs = asyncio.Event()
        self._log_feeds: list[web.StreamResponse] = []

    def app(self) -> web.Application:
        """To be served on a port of its own."""
        app = web.Application()
        app.add_routes(
            [
                *[route.definition() for route in page.routes()],
                web.get("/api/v1/about", self._about),
                web.get("/api/v1/balancers", self._balancers),
                web.get("/api/v1/session", self._session),
                web.get("/api/v1/events", self._events),
                web.get("/api/v1/models", self._models),
                web.get("/api/v1/hosts", self._hosts),
                web.delete("/api/v1/hosts/{name}", self._forget_host),
                web.get("/api/v1/diary", self._diary),
                web.get("/api/v1/requests", self._ended),
                web.get("/api/v1/batches", self._batches),
                web.post("/api/v1/batches/{id}/cancel", self._cancel_batch),
                web.get("/api/v1/history", self._history),
                web.get("/api/v1/usage", self._usage),
                web.get("/api/v1/agents/{id}/devices", self._devices),
                web.get("/api/v1/agents/{id}/log", self._log),
                web.get("/api/v1/agents/{id}/log/events", self._log_events),
                web.get("/api/v1/keys", self._keys),
                web.post("/api/v1/keys", self._make_key),
                web.delete("/api/v1/keys/{name}", self._revoke_key),
                web.post("/api/v1/keys/{name}/rotate", self._rotate_key),
                web.get("/api/v1/desired-state", self._get_state),
                web.put("/api/v1/desired-state", self._put_state),
                web.post("/api/v1/agents/{id}/{verb}", self._steer),
                web.post("/api/v1/generate", self._generate),
            ]
        )
        return app

    async def tell(self, name: str, data: dict[str, Any]) -> None:
        """Send an event to every page that listens."""
        for feed in self._feeds:
            await _write(feed, name, data)

    def totals(self) -> dict[str, Any]:
        """What every event of the fleet has."""
        slots = [each["slots"] for each in self.agents]
        waiting = [each["priority_class"] for each in self.requests if each["state"] == "queued"]
        return {
            "at": 1000.0,
            "is_draining": False,
            "queue": {"depth": len(waiting), "limit": 256, "by_class": Counter(waiting)},
            "slots": {name: sum(each[name] for each in slots) for name in ("total", "busy")},
            "tokens_total": 1000,
            "moves_total": self.num_moves,
            "num_requests": len(self.requests),
        }

    def snapshot(self) -> dict[str, Any]:
        """The first event of every feed, after which a page asks who is logged in."""
        entries = {"agents": self.agents, "requests": self.requests}
        return {**self.totals(), "clocks": CLOCKS, "troubles": self.troubles, **entries}

    def throughput(self) -> dict[str, Any]:
        """One second's throughput, the same for each agent."""
        rates = {each["id"]: 10.0 for each in self.agents}
        total = {"seconds": 1.0, "tokens_per_second": 10.0 * len(rates)}
        return {**total, "agents": rates, "queue_depth": 1, "slots_busy": 2}

    async def _events(self, call: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(call)
        await _write(response, "snapshot", self.snapshot())
        self._feeds.append(response)
        try:
            while True:
                await asyncio.sleep(TICK)
                await _write(response, "throughput", self.throughput())
        except ConnectionError:
            return response  # the page has gone
        finally:
            self._feeds.remove(response)

    async def _models(self, _call: web.Request) -> web.Response:
        return _answer(Models, {"models": self.models})

    async def _hosts(self, _call: web.Request) -> web.Response:
        return _answer(Hosts, {"hosts": self.hosts})

    async def _forget_host(self, call: web.Request) -> web.Response:
        name = call.match_info["name"]
        self.hosts = [each for each in self.hosts if each["name"] != name]
        return _answer(Forgotten, {"name": name})

    async def _diary(self, call: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(call)
        for entry in self.diary:
            await _write(response, "entry", entry)
        try:
            while True:
                await asyncio.sleep(TICK)
                await _write(response, "alive", {})
        except ConnectionError:
            return response  # the page has gone

    async def _batches(self, _call: web.Request) -> web.Response:
        return _answer(BatchViews, {"batches": self.batches})

    async def _cancel_batch(self, call: web.Request) -> web.Response:
        [found] = [each for each in self.batches if each["id"] == call.match_info["id"]]
        found["status"] = "cancelling"
        return _answer(BatchView, found)

    async def _ended(self, call: web.Request) -> web.Response:
        wanted = dict(call.query)
        assert wanted.pop("state") == "ended"
        assert int(wanted.pop("limit")) == 200
        found = [each for each in self.ended if wanted.items() <= each.items()]
        total = len(self.ended)
        return _answer(EndedRequests, {"requests": found, "total": total, "next": None})

    async def _about(self, _call: web.Request) -> web.Response:
        about = {"version": "1.0", "inference_port": INFERENCE_PORT, "public_url": self.public_url}
        return _answer(About, {**about, "is_lasting": self.is_lasting, "issues": []})

    async def _balancers(self, _call: web.Request) -> web.Response:
        one = {"name": "one", "url": None, "version": "1.0", "leads": True, "is_here": True}
        return _answer(Balancers, {"balancers": [{**one, "since": None, "last_heartbeat": 1.7e9}]})

    async def _log(self, _call: web.Request) -> web.Response:
        if self.log is None:
            error = {"code": "not_supported", "message": "too old", "retryable": False}
            return web.json_response({"error": error}, status=501)
        return _answer(AgentLog, {"lines": self.log, "after": 0})

    async def _log_events(self, call: web.Request) -> web.StreamResponse:
        if self.log is None:
            return await self._log(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(call)
        self._log_feeds.append(response)
        try:
            while True:
                await _write(response, "lines", {"lines": self.log or [], "after": 0})
                await asyncio.sleep(TICK)
        except ConnectionError:
            return response  # the page has gone
        finally:
            self._log_feeds.remove(response)
            if not self._log_feeds:
                self.nobody_reads_logs.set()

    async def _session(self, _call: web.Request) -> web.Response:
        if self.role is None:
            nobody = dict.fromkeys(("name", "role", "csrf", "expires_at", "sign_out"))
            return _answer(SessionState, {"needs_key": self.is_login_needed, **nobody})
        nothing = {"expires_at": None, "sign_out": None}
        somebody = {"name": "ana", "role": self.role, "csrf": "c", **nothing}
        return _answer(SessionState, {"needs_key": True, **somebody})

    async def _keys(self, _call: web.Request) -> web.Response:
        return _answer(Keys, {"keys": self.keys})

    async def _make_key(self, call: web.Request) -> web.Response:
        spec = await call.json()
        if spec["name"] in [key["name"] for key in self.keys]:
            error = {"code": "conflict", "message": "there is one", "retryable": False}
            return web.json_response({"error": {**error, "field": "name"}}, status=409)
        self.sent.append(("POST", "", spec))
        self.keys.append(access_key(**spec))
        return _answer(NewKey, {**self.keys[-1], "key": SECRET}, status=201)

    async def _revoke_key(self, call: web.Request) -> web.Response:
        return _answer(Key, self._changed(call, revoked_at=1_700_000_000.0, is_valid=False))

    async def _rotate_key(self, call: web.Request) -> web.Response:
        return _answer(NewKey, {**self._changed(call), "key": SECRET})

    def _changed(self, call: web.Request, **fields: Any) -> dict[str, Any]:
        name = call.match_info["name"]
        self.sent.append((call.method, name, None))
        [key] = [each for each in self.keys if each["name"] == name]
        key.update(fields)
        return key

    async def _history(self, call: web.Request) -> web.Response:
        self.asked.append(dict(call.query))
        if self.history is None:
            error = {"code": "internal_error", "message": "it broke", "retryable": False}
            return web.json_response({"error": error}, status=500)
        return _answer(History, self.history)

    async def _devices(self, _call: web.Request) -> web.Response:
        return _answer(PastDevices, {"step": 5.0, "devices": self.devices})

    async def _usage(self, call: web.Request) -> web.Response:
        self.asked.append(dict(call.query))
        if self.usage is None:
            error = {"code": "store_unavailable", "message": "it is away", "retryable": True}
            return web.json_response({"error": error}, status=503)
        by = call.query["by"].split(",")
        rows = [row for row in self.usage if by == [name for name in USAGE_COLUMNS if name in row]]
        total = {name: sum(row[name] for row in rows) for name in USAGE_COUNTS}
        days = {"since": "2026-01-01", "until": "2026-01-30"}
        return _answer(UsageReport, {**days, "by": by, "usage": rows, "total": total})

    async def _get_state(self, _call: web.Request) -> web.Response:
        return _answer(DesiredModels, self.state, headers={"ETag": f'"{self.revision}"'})

    async def _put_state(self, call: web.Request) -> web.Response:
        state = await call.json()
        if self.problems:
            error = {"code": "invalid_request", "message": "wrong", "retryable": False}
            return web.json_response({"error": {**error, "problems": self.problems}}, status=400)
        if call.headers.get("If-Match") != f'"{self.revision}"':
            error = {"code": "conflict", "message": "stale", "retryable": False}
            return web.json_response({"error": error}, status=409)
        if call.query.get("dry_run") == "true":
            plan = {"agents": self.plan, "lacking": self.lacking, "desired": state}
            return _answer(DryRun, plan)
        self.state, self.revision = state, self.revision + 1
        return await self._get_state(call)

    async def _steer(self, call: web.Request) -> web.Response:
        found, verb = call.match_info["id"], call.match_info["verb"]
        self.steered.append((found, verb))
        return _answer(Steered, {"id": found, "state": "draining"})

    async def _generate(self, call: web.Request) -> web.Response:
        self.generated.append(await call.json())
        lines = "\n".join(json.dumps(event) for event in self.events)
        return web.Response(text=lines, content_type="application/x-ndjson")


EVENTS: dict[str, Any] = {
    "snapshot": Snapshot,
    "delta": Delta,
    "throughput": ThroughputPoint,
    "entry": DiaryEntry,
    "alive": dict[str, Any],
    "lines": AgentLog,
}

_types = cache(TypeAdapter)


def _checked(kind: Any, body: dict[str, Any]) -> str:
    """`body` as JSON. Raises `ValidationError` if it is not one of `kind`."""
    text = json.dumps(body)
    _types(kind).validate_json(text, extra="forbid")
    return text


def _answer(kind: Any, body: dict[str, Any], **more: Any) -> web.Response:
    return web.json_response(text=_checked(kind, body), **more)


async def _write(feed: web.StreamResponse, name: str, data: dict[str, Any]) -> None:
    await feed.write(f"event: {name}\ndata: {_checked(EVENTS[name], data)}\n\n".encode())
