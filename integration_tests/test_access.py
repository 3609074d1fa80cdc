"""Access keys over real daemons: who is let in, what ends with a key, where no key stands."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from langchain_openai import ChatOpenAI
from schemathesis import GenerationMode

from arriero.balancer.access.access_key import new_key
from arriero.client import Client
from arriero.client.errors import RequestFailed
from integration_tests.daemons import DEADLINE, Fleet, until
from integration_tests.test_openapi import CHECKS, DOCUMENTS

WRONG = new_key(b"w" * 32)
ADMIN = new_key(b"a" * 32)
LONG = {"max_tokens": 900, "ignore_eos": True}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Keyed:
    """A fleet that needs keys, and the keys that were made."""

    fleet: Fleet
    folder: Path
    secrets: dict[str, str] = field(default_factory=dict)

    async def make(self, name: str, role: str, **more: Any) -> str:
        async with Client(management=self.fleet.management, key=ADMIN) as client:
            made = await client.management.create_key(name, role, **more)
        self.secrets[name] = made["key"]
        return str(made["key"])

    async def revoke(self, name: str) -> None:
        async with Client(management=self.fleet.management, key=ADMIN) as client:
            await client.management.revoke_key(name)

    def client(self, key: str | None) -> Client:
        return Client(self.fleet.inference, management=self.fleet.management, key=key)

    async def post(self, path: str, key: str, body: dict[str, Any]) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {key}"}
        return await self.fleet.http.post(
            f"{self.fleet.inference}{path}", json=body, headers=headers
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Keyed]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "admin.key").write_text(ADMIN)
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack, forks=False)  # a test reads the command lines of these two
        await fleet.open_client()
        await fleet.start_balancer(admin_key_file=folder / "admin.key")
        keyed = Keyed(fleet, folder, {"admin": ADMIN, "wrong": WRONG})
        agent = await keyed.make("rack", "agent")
        await fleet.start_agent(env={"ARRIERO_AGENT_KEY": agent})
        fleet.forks = True
        await keyed.make("app", "inference")
        await keyed.make("eye", "viewer")
        yield keyed


async def test_openais_client(keyed: Keyed) -> None:
    def client(key: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            timeout=DEADLINE, api_key=key, base_url=f"{keyed.fleet.inference}/v1", max_retries=0
        )

    async with client(keyed.secrets["app"]) as ours:
        models = [model.id async for model in ours.models.list()]
        made = await ours.completions.create(model=models[0], prompt="x", max_tokens=2)
        assert made.usage is not None and made.usage.completion_tokens == 2
    async with client("sk-not-a-key") as wrong:
        with pytest.raises(openai.AuthenticationError, match="not known"):
            await wrong.models.list()
    async with client(keyed.secrets["eye"]) as viewer:
        with pytest.raises(openai.PermissionDeniedError, match="role viewer"):
            await viewer.completions.create(model=models[0], prompt="x")


async def test_anthropics_client(keyed: Keyed) -> None:
    async def ask(**shown: Any) -> anthropic.types.Message:
        async with anthropic.AsyncAnthropic(
            timeout=DEADLINE, base_url=keyed.fleet.inference, max_retries=0, **shown
        ) as client:
            return await client.messages.create(
                model="arriero-demo", max_tokens=2, messages=[{"role": "user", "content": "Hi"}]
            )

    assert (await ask(api_key=keyed.secrets["app"])).usage.output_tokens == 2
    assert (await ask(auth_token=keyed.secrets["app"], api_key=None)).usage.output_tokens == 2
    with pytest.raises(anthropic.AuthenticationError):
        await ask(api_key=WRONG)
    with pytest.raises(anthropic.PermissionDeniedError):
        await ask(api_key=keyed.secrets["eye"])


async def test_langchain(keyed: Keyed) -> None:
    def model(key: str) -> ChatOpenAI:
        url = f"{keyed.fleet.inference}/v1"
        return ChatOpenAI(
            timeout=DEADLINE, model="arriero-demo", base_url=url, api_key=key, max_retries=0
        )  # type: ignore[arg-type]

    assert (await model(keyed.secrets["app"]).ainvoke("What is a slot?", max_tokens=4)).content
    with pytest.raises(openai.AuthenticationError):
        await model(WRONG).ainvoke("What is a slot?")


async def test_our_own_client_and_socket(keyed: Keyed) -> None:
    async with keyed.client(keyed.secrets["app"]) as client, client.socket() as socket:
        assert (await socket.generate(prompt="x", max_tokens=2)).usage.completion_tokens == 2
        with pytest.raises(RequestFailed, match="role inference; this needs seeing the fleet"):
            await client.management.agents()
    for key in (None, WRONG):
        async with keyed.client(key) as client:
            with pytest.raises(RequestFailed) as refused:
                await client.generate(prompt="x")
            assert (refused.value.code, refused.value.status) == ("unauthorized", 401)


# ---- what is open ends


@pytest.mark.parametrize("path", ["/api/v1/generate", "/v1/completions", "/v1/messages"])
async def test_revoking_ends_streams_with_unauthorized(keyed: Keyed, path: str) -> None:
    name = f"stream{path.replace('/', '-')}"
    key = await keyed.make(name, "inference")
    body: dict[str, Any] = {"stream": True, "model": "arriero-demo", **LONG}
    if path == "/v1/messages":
        body = {"stream": True, "model": "arriero-demo", "max_tokens": 900}
        body["messages"] = [{"role": "user", "content": "Count to a thousand."}]
        body["ignore_eos"] = True
    else:
        body["prompt"] = "Once"
    pace = keyed.fleet.agents[0].pace
    await pace.hand_out(5)
    async with await keyed.post(path, key, body) as response:
        assert response.status == 200, await response.text()
        await response.content.readline()
        await keyed.revoke(name)
        rest = await response.text()
    await pace.let_go()
    assert f"the key '{name}' was revoked" in rest
    assert ("unauthorized" in rest) or ("authentication_error" in rest)
    async with await keyed.post(path, key, body) as response:
        assert response.status == 401
    async with keyed.client(ADMIN) as client:
        ended = await client.management.requests(state="ended", caller=name)
        assert [each["code"] for each in ended] == ["unauthorized"]


FORM = (
    '--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
    'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{}\n'
)
NEW_ADMIN = '{"name": "backdoor", "role": "admin"'
HALVES = [
    ("management", "POST", "/api/v1/keys", NEW_ADMIN),
    ("management", "PUT", "/api/v1/desired-state", '{"models": []'),
    ("management", "POST", "/api/v1/generate", '{"prompt": "x", "max_tokens": 1'),
    ("inference", "POST", "/api/v1/generate", '{"prompt": "x", "max_tokens": 1'),
    ("inference", "POST", "/v1/completions", '{"prompt": "x", "max_tokens": 1'),
    ("inference", "POST", "/v1/responses", '{"input": "x", "max_output_tokens": 1'),
    ("inference", "POST", "/v1/conversations", '{"items": []'),
    ("inference", "POST", "/v1/batches", '{"input_file_id": "file-x"'),
    ("inference", "POST", "/tokenize", '{"prompt": "x"'),
    ("inference", "POST", "/v1/files", FORM),
]
"""Port, method, path, and the first half of a body."""


class HalfSent:
    """A call whose second half the test lets go."""

    def __init__(
        self, fleet: Fleet, call: tuple[str, str, str, str], shown: dict[str, str]
    ) -> None:
        port, method, path, self._head = call
        self._go_on = asyncio.Event()
        self._is_begun = asyncio.Event()
        is_form = self._head is FORM
        self._tail = "--x--\r\n" if is_form else "}"
        kind = "multipart/form-data; boundary=x" if is_form else "application/json"
        self.answer = asyncio.create_task(
            fleet.http.request(
                method,
                getattr(fleet, port) + path,
                data=self._body(),
                headers={"Content-Type": kind} | shown,
                expect100=True,  # it goes on once the balancer has looked at the key
            )
        )

    async def _body(self) -> AsyncIterator[bytes]:
        yield self._head.encode()
        self._is_begun.set()
        await self._go_on.wait()
        yield self._tail.encode()

    async def begun(self) -> None:
        await self._is_begun.wait()

    async def status(self, *, goes_on: bool = False) -> int:
        if goes_on:
            self._go_on.set()
        async with asyncio.timeout(DEADLINE), await self.answer as answer:
            return answer.status


async def test_what_is_half_sent_ends_with_its_key_and_nobody_elses_does(keyed: Keyed) -> None:
    key = await keyed.make("leaver", "admin")
    halves = [HalfSent(keyed.fleet, call, {"x-api-key": key}) for call in HALVES]
    beside = HalfSent(keyed.fleet, HALVES[4], {"x-api-key": keyed.secrets["app"]})
    for half in (*halves, beside):
        await half.begun()
    async with keyed.client(key) as leaver:
        await leaver.management.revoke_key("leaver")  # which answers whoever revokes its own key
    assert [await half.status() for half in halves] == [401] * len(halves)
    assert await beside.status(goes_on=True) == 200
    async with keyed.client(ADMIN) as client:
        keys = await client.management.keys()
        assert "backdoor" not in [each["name"] for each in keys]


async def test_what_is_half_sent_ends_with_its_session(keyed: Keyed) -> None:
    key = await keyed.make("visitor", "admin")
    url = f"{keyed.fleet.management}/api/v1/session"

    async def log_in() -> dict[str, str]:
        async with keyed.fleet.http.post(url, json={"key": key}) as answer:
            csrf = (await answer.json())["csrf"]
            cookie = answer.cookies["arriero_session"].value
        return {"x-arriero-csrf": csrf, "Cookie": f"arriero_session={cookie}"}

    leaving, staying = await log_in(), await log_in()
    half = HalfSent(keyed.fleet, ("management", "POST", "/api/v1/keys", NEW_ADMIN), leaving)
    beside = HalfSent(
        keyed.fleet,
        ("management", "POST", "/api/v1/generate", '{"prompt": "x", "max_tokens": 1'),
        staying,
    )
    await half.begun()
    await beside.begun()
    follows = leaving | {"Accept": "text/event-stream"}
    streams = [
        await keyed.fleet.http.get(f"{keyed.fleet.management}/api/v1/{path}", headers=follows)
        for path in ("events", "diary")
    ]
    async with keyed.fleet.http.delete(url, headers=leaving) as answer:
        assert answer.status == 200
        assert await half.status() == 401
        async with asyncio.timeout(DEADLINE):
            for stream in streams:
                await stream.read()  # to its end, which is in good order
    assert await beside.status(goes_on=True) == 200


async def test_a_revoked_agent_leaves_and_says_why(keyed: Keyed) -> None:
    key = await keyed.make("spare", "agent", labels={"zone": "b"}, models=["arriero-demo"])
    file = keyed.folder / "spare.key"
    file.write_text(key)
    agent = await keyed.fleet.start_agent(key_file=file, label="zone=b", slots=1)
    await keyed.revoke("spare")
    line = await agent.until_line(agent.stderr, "refuses this agent")
    assert "the key 'spare' was revoked" in line

    async def has_left() -> bool:
        async with keyed.client(ADMIN) as client:
            return len(await client.management.agents()) == 1

    await until(has_left)
    await agent.terminate()


async def test_an_agent_beyond_its_key_does_not_start(keyed: Keyed) -> None:
    key = await keyed.make("bound", "agent", labels={"zone": "b"}, models=["arriero-demo"])
    agent = await keyed.fleet.launch_agent(env={"ARRIERO_AGENT_KEY": key}, label="zone=c", slots=1)
    assert await agent.exit_code() == 1
    assert "does not allow the label 'zone=c'" in agent.stderr[-1]


# ---- whatever is asked


OPERATIONS = [
    (port, method, path)
    for port, document in DOCUMENTS.items()
    for path, methods in document["paths"].items()
    for method, operation in methods.items()
    if operation.get("security") != []
]


def ask_some(url: str, port: str, method: str, path: str, key: str, most: int) -> set[int]:
    """Blocks until `most` calls that the document allows were made; the statuses that came."""
    operation = schemathesis.openapi.from_dict(DOCUMENTS[port])[path][method.upper()]
    statuses: set[int] = set()

    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(
        max_examples=most,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        headers = dict(case.headers or {})
        headers.pop("Authorization", None)
        case.headers = headers | {"x-api-key": key}
        response = case.call(base_url=url, timeout=60.0)
        case.validate_response(response, checks=CHECKS[:3])
        statuses.add(response.status_code)

    ask()
    return statuses


async def test_with_a_wrong_key_nothing_is_well_and_nothing_breaks(keyed: Keyed) -> None:
    for port, method, path in OPERATIONS:
        url = getattr(keyed.fleet, port)
        statuses = await asyncio.to_thread(ask_some, url, port, method, path, WRONG, 2)
        assert statuses <= {401}, f"{method} {path}"


async def test_new_keys_are_as_documented(keyed: Keyed) -> None:
    url, path = keyed.fleet.management, "/api/v1/keys"
    statuses = await asyncio.to_thread(ask_some, url, "management", "post", path, ADMIN, 20)
    assert statuses <= {201, 400, 409}


async def test_a_hang_up_has_the_admins_key_file_read_again(keyed: Keyed) -> None:
    url, file = f"{keyed.fleet.management}/api/v1/keys", keyed.folder / "admin.key"
    new = new_key(b"n" * 32)
    for text, good, bad in ((new, new, ADMIN), ("no key", new, ADMIN), (ADMIN, ADMIN, new)):
        file.write_text(text)
        keyed.fleet.balancer.signal(signal.SIGHUP)

        async def status(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with keyed.fleet.http.get(url, headers=headers) as answer:
                return answer.status

        async def is_taken(good: str = good, bad: str = bad) -> bool:
            return (await status(good), await status(bad)) == (200, 401)

        await until(is_taken)
    await keyed.fleet.balancer.until_line(keyed.fleet.balancer.stderr, "the old key stays")


# ---- who is refused


async def test_operators_see_who_is_refused_at_the_doors(keyed: Keyed) -> None:
    agent = await keyed.fleet.launch_agent(env={"ARRIERO_AGENT_KEY": WRONG}, slots=1)
    await agent.until_line(agent.stderr, "refuses this agent")
    url = f"{keyed.fleet.management}/api/v1/session"
    for _ in range(12):
        async with keyed.fleet.http.post(url, json={"key": WRONG}) as answer:
            assert answer.status == 401

    async def entries() -> list[str]:
        async with keyed.client(ADMIN) as client:
            found = await client.management.diary()
        told = [each["message"] for each in found if each["kind"] == "refused"]
        return [each.partition(" at the ")[2].partition(",")[0] for each in told]

    async def are_noted() -> bool:
        return {"agents' socket", "log-in of the dashboard"} <= set(await entries())

    await until(are_noted)
    assert len(set(await entries())) == len(await entries()), "one for each door"
    async with keyed.client(ADMIN) as client:
        snapshot = await anext(client.management.events())
    going_on = {each["name"] for each in snapshot.data["troubles"] if each["kind"] == "refused"}
    assert {"agents", "log_in"} <= going_on
    balancer = keyed.fleet.balancer
    for door in ("agents' socket", "log-in of the dashboard"):
        await balancer.until_line(balancer.stderr, f"refused at the {door}")
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with keyed.fleet.http.get(f"{keyed.fleet.management}/metrics", headers=headers) as answer:
        metrics = await answer.text()
    assert 'arriero_refused_total{door="log_in",kind="unknown_key"}' in metrics
    assert 'arriero_refused_total{door="agents",kind="unknown_key"}' in metrics
    await agent.terminate()


# ---- where no key stands


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


async def test_no_key_is_in_a_log_a_metric_a_list_or_a_process(keyed: Keyed) -> None:
    """The last test: all others have shown their keys by now."""
    async with keyed.fleet.http.get(f"{keyed.fleet.inference}/v1/models?key={ADMIN}") as answer:
        assert answer.status == 401 and ADMIN not in await answer.text()
    headers = {"Authorization": f"Bearer {ADMIN}", "User-Agent": f"spy/{ADMIN}"}
    seen = []
    paths = ("/metrics", "/api/v1/keys", "/api/v1/requests?state=ended", "/api/v1/history")
    for path in (*paths, "/api/v1/usage", f"/api/v1/agents/{WRONG[:40]}"):
        async with keyed.fleet.http.get(keyed.fleet.management + path, headers=headers) as answer:
            seen.append(await answer.text())
    daemons = [keyed.fleet.balancer, *keyed.fleet.agents]
    seen += [line for daemon in daemons for line in (*daemon.stderr, *daemon.stdout)]
    running = [each for each in daemons if each.process.returncode is None]
    seen += [command_line(pid) for daemon in running for pid in daemon.pids]
    text = "\n".join(seen)
    assert "app" in text and len(keyed.secrets) >= 5
    assert not [name for name, secret in keyed.secrets.items() if secret in text]
