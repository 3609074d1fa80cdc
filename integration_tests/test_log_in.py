"""Logging in to the dashboard with access keys, and what each role sees."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from arriero.balancer.access.access_key import new_key
from integration_tests.daemons import Fleet
from integration_tests.dashboard import Dashboard

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install the browser
]

ADMIN = new_key(b"a" * 32)


async def key_of(fleet: Fleet, role: str) -> str:
    """A new key, made by the admin."""
    url = f"{fleet.management}/api/v1/keys"
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with fleet.http.post(url, json={"name": role, "role": role}, headers=headers) as answer:
        assert answer.status == 201
        return str((await answer.json())["key"])


async def log_in(dashboard: Dashboard, key: str) -> None:
    await dashboard.part("access-key").fill(key)
    await dashboard.part("log-in-button").click()


async def test_each_role_logs_in_and_sees_what_it_may(
    fresh_fleet: Fleet, dashboard: Dashboard, tmp_path: Path
) -> None:
    file = tmp_path / "admin.key"
    file.write_text(ADMIN)
    await fresh_fleet.start_balancer(admin_key_file=file)
    viewer = await key_of(fresh_fleet, "viewer")
    page = dashboard.page

    await page.goto(f"{fresh_fleet.management}/#/models")
    await expect(dashboard.part("log-in")).to_be_visible()
    await expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    assert dashboard.complaints == []
    await log_in(dashboard, new_key(b"b" * 32))
    await expect(dashboard.part("log-in-problem")).to_contain_text("not known here")
    [refusal] = dashboard.complaints  # the browser's own line about the status
    assert "401" in refusal
    dashboard.complaints.clear()

    await log_in(dashboard, viewer)
    await expect(dashboard.part("connection")).to_have_attribute("data-state", "live")
    await expect(dashboard.part("who-name")).to_have_text("viewer, viewer")
    await expect(dashboard.part("no-models")).to_be_visible()
    await expect(dashboard.part("add-model")).to_be_hidden()
    await expect(page.get_by_role("link", name="Playground")).to_be_hidden()
    assert [each["name"] for each in await page.context.cookies()] == ["arriero_session"]
    assert await page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"

    await dashboard.part("log-out").click()
    await expect(dashboard.part("log-in")).to_be_visible()
    assert await page.context.cookies() == []
    await log_in(dashboard, ADMIN)
    await expect(dashboard.part("who-name")).to_have_text("admin-key-file, admin")
    await expect(dashboard.part("add-model")).to_be_visible()
    await dashboard.turn_to("Playground")
    await dashboard.ask("What is a slot?")
    await dashboard.turn_to("Requests")
    await expect(dashboard.part("cancel")).to_have_count(1)
    await dashboard.part("cancel").click()
    await expect(dashboard.part("cancel")).to_have_count(0)
    assert all("499" in each for each in dashboard.complaints), dashboard.complaints


async def test_whoever_makes_the_first_key_is_logged_in_with_it(
    fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    await fresh_fleet.start_balancer()
    await dashboard.open(fresh_fleet, "keys")
    await expect(dashboard.part("no-keys")).to_contain_text("no key is needed")
    await dashboard.part("key-name").fill("root")
    await dashboard.part("key-role").select_option("admin")
    await dashboard.part("make-key").click()
    secret = dashboard.part("new-key-secret")
    await expect(secret).to_contain_text("ark_")
    await expect(dashboard.part("who-name")).to_have_text("root, admin")
    headers = {"Authorization": f"Bearer {await secret.text_content()}"}
    async with fresh_fleet.http.get(
        f"{fresh_fleet.management}/api/v1/agents", headers=headers
    ) as answer:
        assert answer.status == 200
    row = dashboard.part("key")
    await expect(row).to_contain_text("now")
    await row.get_by_test_id("rotate-key").click()
    await expect(dashboard.part("confirm")).to_contain_text("You are logged in with it")
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("keys-said")).to_contain_text("another secret")
    async with fresh_fleet.http.get(
        f"{fresh_fleet.management}/api/v1/agents", headers=headers
    ) as answer:
        assert answer.status == 401
    await row.get_by_test_id("revoke-key").click()
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("keys-said")).to_contain_text("the last")
    await dashboard.part("key-name").fill("second")
    await dashboard.part("key-role").select_option("admin")
    await dashboard.part("make-key").click()
    await expect(dashboard.part("key")).to_have_count(2)
    await row.filter(has_text="root").get_by_test_id("revoke-key").click()
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("log-in")).to_be_visible()


async def test_a_revoked_key_ends_what_its_page_shows(
    fresh_fleet: Fleet, dashboard: Dashboard, tmp_path: Path
) -> None:
    file = tmp_path / "admin.key"
    file.write_text(ADMIN)
    await fresh_fleet.start_balancer(admin_key_file=file)
    viewer = await key_of(fresh_fleet, "viewer")
    await dashboard.page.goto(fresh_fleet.management)
    await log_in(dashboard, viewer)
    await expect(dashboard.part("connection")).to_have_attribute("data-state", "live")
    url, headers = (
        f"{fresh_fleet.management}/api/v1/keys/viewer",
        {"Authorization": f"Bearer {ADMIN}"},
    )
    async with fresh_fleet.http.delete(url, headers=headers) as answer:
        assert answer.status == 200
    await expect(dashboard.part("log-in")).to_be_visible()
