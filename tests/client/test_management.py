from typing import Any

import pytest

from arriero.client.client import Client
from arriero.client.errors import RequestFailed
from arriero.client.management import Management
from arriero.client.retries import NEVER, Retries
from tests.client.fakes import FakeServer, says, writes

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], object, tuple[str, str, bytes]]] = [
    ("about", (), {}, {"issues": []}, ("GET", "/api/v1/about", b"")),
    ("agents", (), {}, {"agents": []}, ("GET", "/api/v1/agents", b"")),
    ("agent", ("a/b",), {}, {}, ("GET", "/api/v1/agents/a%2Fb", b"")),
    ("drain", ("a",), {}, {}, ("POST", "/api/v1/agents/a/drain", b"{}")),
    (
        "drain",
        ("a",),
        {"deadline": "5s"},
        {},
        ("POST", "/api/v1/agents/a/drain", b'{"deadline": "5s"}'),
    ),
    ("agent_log", ("a",), {}, {"lines": []}, ("GET", "/api/v1/agents/a/log", b"")),
    ("resume", ("a",), {}, {}, ("POST", "/api/v1/agents/a/resume", b"{}")),
    ("reload", ("a",), {}, {}, ("POST", "/api/v1/agents/a/reload", b"{}")),
    (
        "requests",
        (),
        {"state": "ended", "limit": 3},
        {"requests": []},
        ("GET", "/api/v1/requests?state=ended&limit=3", b""),
    ),
    ("hosts", (), {}, {"hosts": []}, ("GET", "/api/v1/hosts", b"")),
    ("forget_host", ("a/b",), {}, {}, ("DELETE", "/api/v1/hosts/a%2Fb", b"")),
    (
        "diary",
        (),
        {"since": "12h", "limit": 3},
        {"entries": []},
        ("GET", "/api/v1/diary?since=12h&limit=3", b""),
    ),
    ("cancel", ("r",), {}, {}, ("DELETE", "/api/v1/requests/r", b"")),
    ("models", (), {}, {"models": []}, ("GET", "/api/v1/models", b"")),
    ("usage", (), {"by": "day"}, {}, ("GET", "/api/v1/usage?by=day", b"")),
    ("keys", (), {}, {"keys": []}, ("GET", "/api/v1/keys", b"")),
    (
        "create_key",
        ("ci", "inference"),
        {"expires": "90d"},
        {"key": "secret"},
        ("POST", "/api/v1/keys", b'{"name": "ci", "role": "inference", "expires": "90d"}'),
    ),
    ("revoke_key", ("c/i",), {}, {}, ("DELETE", "/api/v1/keys/c%2Fi", b"")),
    ("rotate_key", ("ci",), {}, {}, ("POST", "/api/v1/keys/ci/rotate", b"{}")),
    ("history", (), {"step": 60}, {}, ("GET", "/api/v1/history?step=60", b"")),
    (
        "wish",
        ({"models": []},),
        {"dry_run": True},
        {},
        ("PUT", "/api/v1/desired-state?dry_run=true", b'{"models": []}'),
    ),
    (
        "model_fit",
        ("file:///m.gguf",),
        {"slots": 2},
        {"agents": []},
        ("GET", "/api/v1/models/fit?source=file:///m.gguf&slots=2", b""),
    ),
]


@pytest.mark.parametrize(("name", "arguments", "options", "answer", "seen"), CALLS)
async def test_each_call(
    server: FakeServer,
    name: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    answer: object,
    seen: tuple[str, str, bytes],
) -> None:
    server.will(says(answer))
    async with Client(management=server.url, retries=NEVER) as client:
        await getattr(client.management, name)(*arguments, **options)
    assert server.seen == [seen]


def test_the_table_has_every_call() -> None:
    public = {name for name in vars(Management) if not name.startswith("_")}
    assert public - {"close", "events", "diary_events", "agent_log_events", "desired_state"} == {
        call[0] for call in CALLS
    }


async def test_a_wish_refers_to_what_it_changes(server: FakeServer) -> None:
    stale = {"error": {"code": "conflict", "message": "changed since"}}
    async with Client(management=server.url, retries=NEVER) as client:
        server.will(says({"models": []}, ETag='"4"'), says(stale, status=409))
        desired = await client.management.desired_state()
        with pytest.raises(RequestFailed, match="changed since"):
            await client.management.wish(desired.state, etag=desired.etag)
    assert server.headers[1]["If-Match"] == '"4"'


async def test_events_go_on_where_they_broke(server: FakeServer) -> None:
    retries = Retries(limit=2, first_pause=0.001, last_pause=0.001)
    async with Client(management=server.url, retries=retries) as client:
        server.will(
            writes(b'event: snapshot\nid: 1\ndata: {"a": 1}\n\n', breaks=True),
            says(
                {"error": {"code": "shutting_down", "message": "m", "retryable": True}}, status=503
            ),
            writes(b'event: delta\nid: 2\ndata: {"b": 2}\n\n'),
            *[says({"error": {"code": "x", "message": "m"}}, status=400)] * 2,
        )
        events = client.management.events()
        first, second = await anext(events), await anext(events)
        with pytest.raises(RequestFailed):
            await anext(events)
    assert (first.name, first.data, second.name, second.data) == (
        "snapshot",
        {"a": 1},
        "delta",
        {"b": 2},
    )
    ids = [headers.get("Last-Event-ID") for headers in server.headers]
    assert ids == [None, "1", "1", "2"]
