"""The configurations of docs/examples in the real nginx and Caddy."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from arriero.balancer.access.access_key import new_key
from integration_tests.corpus import LONG_CONTEXT, UNENDING
from integration_tests.daemons import DEADLINE, Fleet, own_port, until
from integration_tests.installed import installed

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
LLM, ADMIN = "llm.example.com", "arriero.example.com"

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the proxies


class Proxy:
    """A proxy in front of a fleet, which is asked as if it had the example's names."""

    def __init__(self, fleet: Fleet, port: int) -> None:
        self._fleet = fleet
        self._port = port

    def ask(self, name: str, method: str, path: str, **more: Any) -> Any:
        headers = {"Host": name} | more.pop("headers", {})
        url = f"https://127.0.0.1:{self._port}{path}"
        return self._fleet.http.request(
            method, url, headers=headers, ssl=False, server_hostname=name, **more
        )

    def socket(self, name: str, path: str) -> Any:
        url = f"https://127.0.0.1:{self._port}{path}"
        return self._fleet.http.ws_connect(
            url, headers={"Host": name}, ssl=False, server_hostname=name
        )

    async def until_ready(self) -> None:
        async def answers() -> bool:
            try:
                async with self.ask(LLM, "GET", "/health") as response:
                    return bool(response.status == 200)
            except aiohttp.ClientConnectionError:
                return False

        await until(answers)


@pytest.fixture(params=["nginx", "caddy"])
async def proxy(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Proxy:
    nginx = await asyncio.to_thread(installed, "nginx")
    caddy = await asyncio.to_thread(installed, "caddy")
    await fleet.start_balancer(allowed_host=[LLM, ADMIN])
    await fleet.start_agent(context_size=LONG_CONTEXT)
    await _make_certificate(tmp_path)
    port = own_port()
    if request.param == "nginx":
        config = tmp_path / "nginx.conf"
        config.write_text(_nginx(_pointed(fleet, "nginx.conf"), tmp_path, port))
        await fleet.start(nginx, "-p", str(tmp_path), "-c", str(config), "-g", "daemon off;")
    else:
        config = tmp_path / "Caddyfile"
        config.write_text(_caddy(_pointed(fleet, "Caddyfile"), tmp_path, port))
        home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        await fleet.start(caddy, "run", "--config", str(config), "--adapter", "caddyfile", env=home)
    proxy = Proxy(fleet, port)
    await proxy.until_ready()
    return proxy


def _pointed(fleet: Fleet, example: str) -> str:
    """The example, with this fleet's ports."""
    text = (EXAMPLES / example).read_text()
    for documented, base in ((8061, fleet.inference), (8060, fleet.management)):
        assert f"127.0.0.1:{documented}" in text
        text = text.replace(f"127.0.0.1:{documented}", base.removeprefix("http://"))
    return text


def _nginx(example: str, folder: Path, port: int) -> str:
    own = example.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    own = own.replace("/etc/ssl/arriero/", f"{folder}/")
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"{user} pid {folder}/nginx.pid; error_log stderr; master_process off; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{own}\n}}\n"
    )


def _caddy(example: str, folder: Path, port: int) -> str:
    for name in (LLM, ADMIN):
        assert f"\n{name} {{" in example
        example = example.replace(
            f"\n{name} {{",
            f"\nhttps://{name}:{port} {{\n\ttls {folder}/fullchain.pem {folder}/privkey.pem",
        )
    return f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{example}"


async def _make_certificate(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", f"/CN={LLM}", "-addext", f"subjectAltName=DNS:{LLM},DNS:{ADMIN}"),
        *("-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0


async def test_what_the_balancer_does_works_through_a_proxy(proxy: Proxy, fleet: Fleet) -> None:
    """Streams as they come, cancelled when the client leaves; sockets; large bodies; the page."""
    async with proxy.ask(LLM, "POST", "/api/v1/generate", json=UNENDING) as response:
        assert response.status == 200
        async with asyncio.timeout(DEADLINE):
            events = [json.loads(await response.content.readline()) for _ in range(5)]
        assert {event["event"] for event in events} == {"token"}
        await fleet.until_num_requests(1, "streaming")
        response.close()
    await fleet.until_idle()

    async with proxy.socket(LLM, "/api/v1/socket") as ws:
        await ws.send_json({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert (await ws.receive_json())["result"] == {"pong": True}

    large = BytesIO(json.dumps({"text": "x", "no_such_field": "y" * 4_000_000}).encode())
    sent = {"data": large, "headers": {"Content-Type": "application/json"}}
    async with proxy.ask(LLM, "POST", "/api/v1/tokenize", **sent) as response:
        assert response.status == 400
        assert "no_such_field" in (await response.json())["error"]["message"]

    origin = {"Origin": f"https://{ADMIN}"}
    question = {"prompt": "Hi", "max_tokens": 1, "stream": False}
    async with proxy.ask(ADMIN, "GET", "/") as response:
        assert "<html" in (await response.text()).lower()
    ask = {"json": question, "headers": origin}
    async with proxy.ask(ADMIN, "POST", "/api/v1/generate", **ask) as response:
        assert response.status == 200, await response.text()
    ask["headers"] = {"Origin": f"https://evil-{ADMIN}"}
    async with proxy.ask(ADMIN, "POST", "/api/v1/generate", **ask) as response:
        assert response.status == 403

    async with proxy.ask(ADMIN, "GET", "/api/v1/events") as response:
        async with asyncio.timeout(DEADLINE):
            assert (await response.content.readline()).startswith(b"event: ")
        response.close()


@pytest.fixture
async def single_sign_on(fleet: Fleet) -> AsyncIterator[str]:
    """What stands for oauth2-proxy, at this address. The cookie `company` has a person's groups."""

    async def known(request: web.Request) -> web.Response:
        groups = request.cookies.get("company")
        told = {} if groups is None else {"X-Auth-Request-Groups": groups}
        return web.Response(status=401 if groups is None else 202, headers=told)

    app = web.Application()
    app.router.add_get("/oauth2/auth", known)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    yield f"{host}:{port}"
    await runner.cleanup()


async def test_people_log_in_by_single_sign_on_and_programs_by_key(
    fleet: Fleet, single_sign_on: str, tmp_path: Path
) -> None:
    nginx = await asyncio.to_thread(installed, "nginx")
    key = new_key(b"a" * 32)
    (tmp_path / "admin.key").write_text(key)
    await fleet.start_balancer(allowed_host=[LLM, ADMIN], admin_key_file=tmp_path / "admin.key")
    await _make_certificate(tmp_path)
    port = own_port()
    keys = tmp_path / "keys.map"
    keys.write_text(f'~(^|,)llm-operators(,|$) "Bearer {key}";\n')
    text = _pointed(fleet, "nginx-sso.conf").replace("127.0.0.1:4180", single_sign_on)
    text = text.replace("/etc/nginx/arriero-keys.map", str(keys))
    config = tmp_path / "nginx.conf"
    config.write_text(_nginx(text, tmp_path, port))
    await fleet.start(nginx, "-p", str(tmp_path), "-c", str(config), "-g", "daemon off;")
    proxy = Proxy(fleet, port)
    await proxy.until_ready()
    person = {"Cookie": "company=staff,llm-operators; arriero_session=old"}
    stranger = {"Cookie": "company=not-llm-operators"}
    program = {"Authorization": f"Bearer {key}"}

    async def status(name: str, path: str, **headers: str) -> int:
        more = {"headers": headers, "allow_redirects": False}
        async with proxy.ask(name, "GET", path, **more) as response:
            return int(response.status)

    async with proxy.ask(ADMIN, "GET", "/?a=b", allow_redirects=False) as response:
        to = f"https://{ADMIN}/?a=b"
        assert (response.status, response.headers["Location"].split("rd=")[1]) == (302, to)
    assert await status(ADMIN, "/", **person) == 200
    assert await status(ADMIN, "/api/v1/agents", **person) == 200
    async with proxy.ask(ADMIN, "GET", "/api/v1/session", headers=person) as response:
        session = await response.json()
        assert (session["role"], session["sign_out"]) == ("admin", "/oauth2/sign_out")
    assert await status(ADMIN, "/api/v1/agents", **stranger) == 401  # the balancer's own
    assert await status(ADMIN, "/api/v1/agents", **stranger, **program) == 401
    assert await status(ADMIN, "/api/v1/agents", **program) == 302

    origins = {f"https://{ADMIN}": 404, "https://evil.example.com": 403}
    for origin, expected in origins.items():
        more = {"json": {}, "headers": person | {"Origin": origin}}
        async with proxy.ask(ADMIN, "POST", "/api/v1/agents/none/drain", **more) as response:
            assert response.status == expected

    log_in = {"json": {"key": key}, "headers": stranger | {"Origin": f"https://{ADMIN}"}}
    async with proxy.ask(ADMIN, "POST", "/api/v1/session", **log_in) as response:
        assert response.status == 200
        assert "secure" in response.headers["Set-Cookie"].lower()
        cookie = response.headers["Set-Cookie"].partition(";")[0]
    with_session = {"Cookie": f"{stranger['Cookie']}; {cookie}"}
    assert await status(ADMIN, "/api/v1/agents", **with_session) == 200

    for path in ("/metrics", "/api/v1/agent-socket"):
        assert await status(ADMIN, path) == 401
    assert await status(ADMIN, "/metrics", **program) == 200
    assert await status(LLM, "/v1/models") == 401
    assert await status(LLM, "/v1/models", **program) == 200
