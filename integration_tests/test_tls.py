"""TLS on both ports of a real fleet: clients, agents with and without certificates, renewal."""

import asyncio
import json
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from pathlib import Path
from xml.etree import ElementTree

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio
from langchain_openai import ChatOpenAI
from websockets.asyncio.client import connect

from arriero.client import Client, Untrusted
from arriero.shared.tls.contexts import ClientFiles, client_context
from integration_tests.daemons import DEADLINE, Fleet, until
from integration_tests.installed import installed
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from tests.authority import Authority, Files
from tests.tls_peers import KeyUpdates

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = {"prompt": "Once", "max_tokens": 10**9, "ignore_eos": True, "n_discard": 512}


class Secured:
    """A fleet whose agents show certificates, and the authority of all of them."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.authority = Authority(folder)
        self.served = Files(folder / "served.pem", folder / "served.key")
        self.tls = client_context(ClientFiles(self.authority.ca), time.time())

    def install(self, files: Files) -> None:
        """Serve `files` from now on."""
        for source, target in ((files.cert, self.served.cert), (files.key, self.served.key)):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    async def start(self) -> None:
        self.install(self.authority.sign("first"))
        await self.fleet.open_client(self.tls)
        await self.fleet.start_balancer(
            tls_cert=self.served.cert, tls_key=self.served.key, agent_ca=self.authority.ca
        )
        agent = self.authority.sign("agent", "agent.example")
        await self.fleet.start_agent(
            tls_ca=self.authority.ca, tls_cert=agent.cert, tls_key=agent.key, context_size=2048
        )

    def curl(self, *arguments: str, url: str) -> subprocess.CompletedProcess[str]:
        command = ("curl", "-sS", "--cacert", str(self.authority.ca), *arguments, url)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    async def serial(self) -> str:
        """The certificate that a new connection is shown."""
        host, port = self.fleet.balancer.ready["inference"].rsplit(":", 1)
        _, writer = await asyncio.open_connection(host, int(port), ssl=self.tls)
        serial = writer.get_extra_info("peercert")["serialNumber"]
        writer.transport.abort()
        return str(serial)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    async with AsyncExitStack() as stack:
        secured = Secured(Fleet(stack), tmp_path_factory.mktemp("tls"))
        await secured.start()
        yield secured


async def test_both_ports_and_both_names_with_curl(secured: Secured) -> None:
    for url in (secured.fleet.inference, secured.fleet.management):
        for address in (url, url.replace("127.0.0.1", "localhost")):
            found = secured.curl("--fail", url=f"{address}/health")
            assert (found.returncode, found.stderr) == (0, "")


async def test_plain_http_is_told_where_to_go(secured: Secured) -> None:
    for url in (secured.fleet.inference, secured.fleet.management):
        found = secured.curl(url=url.replace("https", "http") + "/health")
        assert "use https://" in json.loads(found.stdout)["error"]["message"]


async def test_an_old_version_is_refused(secured: Secured) -> None:
    url = f"{secured.fleet.inference}/health"
    assert secured.curl("--tls-max", "1.2", "--fail", url=url).returncode == 0
    old = ("--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0")
    assert secured.curl(*old, url=url).returncode == 35


async def test_a_stranger_who_changes_keys_again_and_again(
    secured: Secured, tmp_path: Path
) -> None:
    """Each record of 27 bytes has the balancer derive a key."""
    host, port = secured.fleet.balancer.ready["inference"].rsplit(":", 1)

    def connected(number: int) -> tuple[socket.socket, bytes]:
        tls = client_context(ClientFiles(secured.authority.ca), time.time())
        tls.keylog_filename = str(tmp_path / f"secrets-{number}")
        stranger = tls.wrap_socket(
            socket.create_connection((host, int(port))), server_hostname=host
        )
        updates = KeyUpdates.logged(tmp_path / f"secrets-{number}")
        records = b"".join(updates.next() for _ in range(10_000))
        return socket.socket(fileno=stranger.detach()), records

    def send(stranger: socket.socket, records: bytes) -> None:
        with suppress(OSError):  # it is cut off
            stranger.settimeout(DEADLINE)
            stranger.sendall(records)
            while stranger.recv(2**16):
                pass

    # Made before the attack: what it takes to make them is not the balancer's.
    made = await asyncio.gather(*(asyncio.to_thread(connected, each) for each in range(9)))
    tries = [made[each : each + 3] for each in range(0, len(made), 3)]

    async def attack(_: Bystander) -> None:
        await asyncio.gather(*(asyncio.to_thread(send, *each) for each in tries.pop()))

    with ExitStack() as stack:
        for stranger, _ in made:
            stack.enter_context(stranger)
        await unnoticed(secured.fleet, attack)


async def test_over_tls_a_page_without_it_is_foreign(secured: Secured) -> None:
    url = f"{secured.fleet.management}/api/v1/socket"
    own = secured.fleet.management
    for origin, status in ((own, 404), (own.replace("https", "http"), 403)):
        async with secured.fleet.http.get(url, headers={"Origin": origin}) as response:
            assert response.status == status, origin


async def test_the_official_clients(secured: Secured) -> None:
    url, question = secured.fleet.inference, {"role": "user", "content": "What is a slot?"}
    http = openai.DefaultAsyncHttpxClient(verify=secured.tls)
    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{url}/v1", api_key="none", http_client=http
    ) as one:
        stream = await one.chat.completions.create(
            model="arriero-demo",
            messages=[question],  # type: ignore[list-item]
            stream=True,
            max_tokens=8,
        )
        assert "".join([each.choices[0].delta.content or "" async for each in stream])
    other = anthropic.DefaultAsyncHttpxClient(verify=secured.tls)
    async with anthropic.AsyncAnthropic(
        timeout=DEADLINE, base_url=url, api_key="none", http_client=other
    ) as two:
        answer = await two.messages.create(
            model="arriero-demo",
            messages=[question],  # type: ignore[list-item]
            max_tokens=8,
        )
        assert answer.usage.output_tokens > 0
    third = openai.DefaultAsyncHttpxClient(verify=secured.tls)
    langchain = ChatOpenAI(
        timeout=DEADLINE,
        model="arriero-demo",
        base_url=f"{url}/v1",
        api_key="none",
        http_async_client=third,
        max_retries=0,
    )
    assert (await langchain.ainvoke("What is a slot?", max_tokens=8)).content
    await third.aclose()
    async with httpx.AsyncClient(trust_env=False) as stranger:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.get(f"{url}/health")


async def test_our_own_client_and_the_events_of_the_dashboard(secured: Secured) -> None:
    fleet = secured.fleet
    there = {"management": fleet.management, "tls_ca": secured.authority.ca}
    async with Client(fleet.inference, **there) as client:  # type: ignore[arg-type]
        answer = await client.generate(prompt="Once", max_tokens=3, ignore_eos=True)
        assert answer.usage.completion_tokens == 3
        async with client.socket() as socket:
            await socket.ping()
        assert [each["name"] for each in await client.management.agents()] == ["agent-1"]
        async with aclosing(client.management.events()) as events:
            assert (await anext(events)).name == "snapshot"
    async with Client(fleet.inference) as stranger:
        with pytest.raises(Untrusted):
            await stranger.models()


async def test_a_websocket(secured: Secured) -> None:
    url = secured.fleet.inference.replace("https", "wss") + "/api/v1/socket"
    async with connect(url, ssl=secured.tls, proxy=None) as socket:
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        assert json.loads(await socket.recv())["id"] == 1


async def test_large_bodies_and_long_answers_are_whole(secured: Secured) -> None:
    text = "The llamas walk. " * 60_000
    url = f"{secured.fleet.inference}/api/v1/count_tokens"
    async with secured.fleet.http.post(url, json={"prompt": text}) as response:
        assert response.status == 200, await response.text()
        assert (await response.json())["num_tokens"] > 60_000


async def test_agents_are_told_why_they_may_not_join(secured: Secured) -> None:
    fleet, ca = secured.fleet, secured.authority.ca
    stranger = Authority(secured.folder, "other").sign("stranger")
    agents = [
        (await fleet.launch_agent(tls_ca=ca), "the agent showed no certificate"),
        (await fleet.launch_agent(), "its certificate is not trusted"),
        (
            await fleet.launch_agent(tls_ca=ca, tls_cert=stranger.cert, tls_key=stranger.key),
            "its --agent-ca has to know who signed",
        ),
    ]
    for agent, reason in agents:
        await agent.until_line(agent.stderr, reason)
    assert [each["name"] for each in await fleet.view("agents")] == ["agent-1"]
    for agent, _ in agents:
        await agent.close()


async def test_a_new_certificate_while_a_stream_runs(secured: Secured) -> None:
    fleet = secured.fleet
    before = await secured.serial()
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, json=ENDLESS) as response:
        assert await response.content.readline()
        secured.install(secured.authority.sign("second"))

        async def is_new() -> bool:
            return await secured.serial() != before

        await until(is_new)
        for _ in range(20):
            assert json.loads(await response.content.readline())["event"] == "token"
    await fleet.balancer.until_line(fleet.balancer.stderr, "a new certificate is loaded")
    assert [each["name"] for each in await fleet.view("agents")] == ["agent-1"]
    secured.served.cert.write_text("half of a file")

    async def is_told() -> bool:
        await secured.serial()
        return any("the old one stays in use" in line for line in fleet.balancer.stderr)

    await until(is_told)
    assert await secured.serial() != before


async def test_a_scanner_finds_nothing_weak(secured: Secured) -> None:
    for port in ("inference", "management"):
        address = secured.fleet.balancer.ready[port]
        command = (installed("sslscan"), "--xml=-", "--no-check-certificate", address)
        found = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
        )
        [test] = ElementTree.fromstring(found.stdout).iter("ssltest")
        enabled = {
            f"{each.get('type')} {each.get('version')}"
            for each in test.iter("protocol")
            if each.get("enabled") == "1"
        }
        assert enabled == {"tls 1.2", "tls 1.3"}
        ciphers = [str(each.get("cipher")) for each in test.iter("cipher")]
        assert len(ciphers) >= 4
        assert all(name.startswith(("TLS_", "ECDHE-")) for name in ciphers)
        assert all("GCM" in name or "CHACHA20" in name for name in ciphers)
        assert [each.get("supported") for each in test.iter("renegotiation")] == ["0"]
        assert {each.get("vulnerable") for each in test.iter("heartbleed")} == {"0"}
        assert {each.get("supported") for each in test.iter("compression")} <= {"0"}
