"""A session's end, by the clock and by another key of the same name."""

from aiohttp.test_utils import make_mocked_request

from arriero.balancer.access.access import Access
from arriero.balancer.access.sessions import LIFETIME, Sessions
from arriero.balancer.management.session.browser_sessions import COOKIE, BrowserSessions
from tests.balancer.access.builders import record, secret


class Browser:
    """Logged in as the holder of the first key; the test turns the clock."""

    def __init__(self, expires_at: float | None = None) -> None:
        self.time = 1000.0
        key = record("ada", 1, "admin", expires_at=expires_at)
        self.access = Access([key], clock=lambda: self.time)
        self.sessions = Sessions()
        self.browser_sessions = BrowserSessions(
            self.access, self.sessions, clock=lambda: self.time, random_text=lambda _: "random"
        )
        holder = self.access.identify([secret(1)])
        assert holder is not None
        self.sessions.open("token", "csrf", holder, self.time)
        self.request = make_mocked_request("GET", "/", {"Cookie": f"{COOKIE}=token"})

    @property
    def is_in(self) -> bool:
        return self.browser_sessions.find(self.request) is not None


def test_a_session_is_over_after_its_time() -> None:
    browser = Browser()
    browser.time += LIFETIME - 1
    assert browser.is_in
    browser.time += 1
    assert not browser.is_in


async def test_a_key_that_replaces_another_does_not_open_its_sessions() -> None:
    browser = Browser()
    browser.access.put(record("ada", 2, "viewer"))
    assert not browser.is_in
    assert len(browser.sessions) == 0
    browser.access.stop()


async def test_a_role_that_changes_changes_for_open_sessions() -> None:
    browser = Browser()
    browser.access.put(record("ada", 1, "viewer"))
    found = browser.browser_sessions.find(browser.request)
    assert found is not None and found[1].role == "viewer"
    browser.access.stop()


def test_a_key_that_expires_ends_its_sessions_by_itself() -> None:
    browser = Browser(expires_at=1010.0)
    browser.time = 1009.0
    assert browser.is_in
    browser.time = 1010.0
    assert not browser.is_in


def test_only_the_key_that_logged_in_holds_a_session() -> None:
    access = Browser().access
    digest = record("ada", 1).digest
    found = access.holder("ada", digest)
    assert found is not None and found.name == "ada"
    assert access.holder("ada", record("ada", 2).digest) is None
    assert access.holder("nobody", digest) is None
