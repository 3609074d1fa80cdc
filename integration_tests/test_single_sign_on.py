"""The dashboard behind a company's login, whose proxy adds a key to what people send."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import hdrs, web
from playwright.async_api import expect

from arriero.balancer.access.access_key import new_key
from arriero.balancer.management.session_routes import SIGN_OUT_HEADER
from integration_tests.daemons import Fleet
from integration_tests.dashboard import Dashboard
from integration_tests.test_log_in import ADMIN, key_of, log_in

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install the browser
]

NOT_PASSED_ON = {
    *(hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.TRANSFER_ENCODING),
    *(hdrs.CONTENT_LENGTH, hdrs.CONTENT_ENCODING),
}
SIGN_IN = "<h1>Sign in to Example</h1>"


class CompanyProxy:
    """As oauth2-proxy: who has no session is sent to its login.

    To what the others send it adds the `key`, if they have one, and where they `sign_out`.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.management = ""
        self.key: str | None = None
        self.sign_out: str | None = None
        self.has_session = True
        self.shown: list[str | None] = []
        self._fleet = fleet
        self._streams: set[asyncio.Transport] = set()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/oauth2/sign_in", self._sign_in)
        app.router.add_get("/oauth2/sign_out", self._sign_out)
        app.router.add_route("*", "/{path:.*}", self._forward)
        return app

    def end_session(self) -> None:
        self.has_session = False
        for transport in self._streams:
            transport.abort()

    async def _sign_in(self, _request: web.Request) -> web.Response:
        return web.Response(text=SIGN_IN, content_type="text/html")

    async def _sign_out(self, _request: web.Request) -> web.Response:
        self.has_session = False
        raise web.HTTPFound("/")

    def _added(self) -> dict[str, str]:
        key = None if self.key is None else f"Bearer {self.key}"
        added = {hdrs.AUTHORIZATION: key, SIGN_OUT_HEADER: self.sign_out}
        return {name: each for name, each in added.items() if each is not None}

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if not self.has_session:
            raise web.HTTPFound("/oauth2/sign_in")
        self.shown.append(request.headers.get(hdrs.AUTHORIZATION))
        headers = {**request.headers, **self._added()}
        url = f"{self._fleet.management}{request.path_qs}"
        body = await request.read()
        async with self._fleet.http.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            kept = {
                name: each for name, each in answer.headers.items() if name not in NOT_PASSED_ON
            }
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            transport = request.transport
            assert transport is not None
            self._streams.add(transport)
            try:
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            except aiohttp.ClientConnectionError:
                pass  # the browser has gone
            finally:
                self._streams.discard(transport)
        return response


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(fresh_fleet: Fleet, tmp_path: Path) -> AsyncIterator[CompanyProxy]:
    file = tmp_path / "admin.key"
    file.write_text(ADMIN)
    await fresh_fleet.start_balancer(admin_key_file=file)
    proxy = CompanyProxy(fresh_fleet)
    runner = web.AppRunner(proxy.app(), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    proxy.management = "http://{}:{}".format(*runner.addresses[0])
    yield proxy
    await runner.cleanup()


async def test_the_page_asks_for_no_key_and_is_sent_to_the_login_when_its_time_is_over(
    proxy: CompanyProxy, fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    proxy.key = await key_of(fresh_fleet, "operator")
    page = dashboard.page
    await dashboard.open(proxy, "models")
    await expect(dashboard.part("who-name")).to_have_text("operator, operator")
    await expect(dashboard.part("log-in")).to_be_hidden()
    await expect(dashboard.part("log-out")).to_be_hidden()
    await expect(page.get_by_role("link", name="Keys")).to_be_hidden()

    await dashboard.turn_to("Playground")
    await dashboard.ask("What is a slot?")
    await dashboard.turn_to("Requests")
    await expect(dashboard.part("cancel")).to_have_count(1)
    await dashboard.part("cancel").click()
    await expect(dashboard.part("cancel")).to_have_count(0)
    assert await page.context.cookies() == []
    assert set(proxy.shown) == {None}, "the page has no key of its own"
    assert all("499" in each for each in dashboard.complaints)  # the request was cancelled

    evil = {"Origin": "https://evil.example.com"}
    drain = f"{proxy.management}/api/v1/agents/none/drain"
    async with fresh_fleet.http.post(drain, json={}, headers=evil) as answer:
        assert answer.status == 403, "a page of others, with the company's cookie"

    proxy.end_session()
    await expect(page.get_by_role("heading", name="Sign in to Example")).to_be_visible()


async def test_to_log_out_is_to_leave_the_company(
    proxy: CompanyProxy, fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    proxy.key = await key_of(fresh_fleet, "viewer")
    proxy.sign_out = "/oauth2/sign_out"
    await dashboard.open(proxy)
    await expect(dashboard.part("who-name")).to_have_text("viewer, viewer")
    await expect(dashboard.part("log-out")).to_be_hidden()
    await dashboard.part("sign-out").click()
    await expect(dashboard.page.get_by_role("heading", name="Sign in to Example")).to_be_visible()
    assert not proxy.has_session


async def test_who_has_a_key_of_their_own_logs_out_of_both(
    proxy: CompanyProxy, fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    proxy.sign_out = f"{proxy.management}/oauth2/sign_out"
    key = await key_of(fresh_fleet, "viewer")
    page = dashboard.page
    await page.goto(proxy.management)
    await expect(dashboard.part("log-in")).to_be_visible()
    await expect(dashboard.part("sign-out")).to_be_visible()
    await log_in(dashboard, key)
    await expect(dashboard.part("who-name")).to_have_text("viewer, viewer")
    await expect(dashboard.part("sign-out")).to_be_hidden()
    await dashboard.part("log-out").click()
    await expect(page.get_by_role("heading", name="Sign in to Example")).to_be_visible()
    assert (proxy.has_session, await page.context.cookies()) == (False, [])


async def test_a_proxy_that_says_no_place_is_told(
    proxy: CompanyProxy, fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    proxy.key = await key_of(fresh_fleet, "viewer")
    proxy.sign_out = "oauth2/sign_out"
    await dashboard.page.goto(proxy.management)
    await expect(dashboard.part("log-in-problem")).to_contain_text(
        "`x-arriero-sign-out` must be a path, such as /oauth2/sign_out"
    )
    assert all("400" in each for each in dashboard.complaints)


async def test_a_key_that_is_refused_is_told_and_not_asked_for(
    proxy: CompanyProxy, dashboard: Dashboard
) -> None:
    proxy.key = new_key(b"z" * 32)
    await dashboard.page.goto(proxy.management)
    await expect(dashboard.part("log-in-problem")).to_contain_text("not known here")
    await expect(dashboard.page.get_by_role("heading", name="No access")).to_be_visible()
    await expect(dashboard.part("log-in-button")).to_be_hidden()
    assert all("401" in each for each in dashboard.complaints)
