"""Keys over REST: made once, listed without their secrets, revoked and rotated."""

from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import is_key
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.key_service import KeyService
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.key_routes import key_json, new_key_json
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import SavedKey
from tests.balancer import documents
from tests.balancer.access.builders import record, secret
from tests.balancer.management.apps import management_app
from tests.balancer.stores import MemoryStore

KEY = record(
    "rack", 1, "agent", limits=CallerLimits(models=("m",)), labels=(("gpu", "yes"),), expires_at=9.0
)


def test_its_fields() -> None:
    fields = key_json(KEY, 8.0)
    assert (fields["models"], fields["labels"]) == (["m"], {"gpu": "yes"})
    assert (fields["is_valid"], key_json(KEY, 9.0)["is_valid"]) == (True, False)
    assert key_json(KEY, 8.0)["last_used_at"] is None
    assert key_json(KEY, 8.0, 5.0)["last_used_at"] == 5.0
    assert KEY.digest not in str(fields)


def test_a_new_one_has_its_secret() -> None:
    assert new_key_json(KEY, secret(1), 8.0) == {**key_json(KEY, 8.0), "key": secret(1)}


pytestmark = pytest.mark.usefixtures("closes_stores")

DOCUMENT = documents.management()


class Store(MemoryStore):
    is_away = False

    async def save_key(self, key: SavedKey) -> None:
        if self.is_away:
            raise StoreAway("no answer")
        await super().save_key(key)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def client(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    desired_state: DesiredStateService,
    store: Store,
) -> AsyncIterator[TestClient]:
    access = Access()
    keys = KeyService(access, store)
    app = management_app(
        runtime, hub, metrics, desired_state=desired_state, access=access, keys=keys
    )
    async with TestClient(TestServer(app)) as client:
        yield client


def check(body: Any, name: str) -> None:
    schema = DOCUMENT["components"]["schemas"][name]
    jsonschema.Draft202012Validator(schema | {"components": DOCUMENT["components"]}).validate(body)


async def call(
    client: TestClient, method: str, path: str, key: str | None = None, **body: Any
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    content = {"json": body} if method == "POST" and body else {}
    async with client.request(method, f"/api/v1/keys{path}", headers=headers, **content) as answer:
        return answer.status, await answer.json()


async def test_from_the_first_key_to_the_last(client: TestClient) -> None:
    status, root = await call(client, "POST", "", name="root", role="admin")
    assert status == 201
    check(root, "NewKey")
    assert (await call(client, "GET", ""))[0] == 401, "now every call needs a key"
    admin = root["key"]
    status, ci = await call(
        client, "POST", "", admin, name="ci", role="inference", models=["a"], expires="90d"
    )
    assert status == 201 and is_key(ci["key"])
    assert ci["expires_at"] - ci["created_at"] == 90 * 86400

    status, listed = await call(client, "GET", "", admin)
    check(listed, "Keys")
    assert [(each["name"], each["role"], each["models"]) for each in listed["keys"]] == [
        ("ci", "inference", ["a"]),
        ("root", "admin", None),
    ]
    assert [each["last_used_at"] is None for each in listed["keys"]] == [True, False]
    assert "ark_" not in str(listed) and "digest" not in str(listed)

    status, rotated = await call(client, "POST", "/ci/rotate", admin)
    assert status == 200 and rotated["key"] != ci["key"]
    check(rotated, "NewKey")
    status, revoked = await call(client, "DELETE", "/ci", admin)
    assert status == 200 and revoked["revoked_at"] and not revoked["is_valid"]
    check(revoked, "Key")
    assert (await call(client, "POST", "/ci/rotate", admin))[0] == 409
    assert (await call(client, "DELETE", "/nobody", admin))[0] == 404
    status, refused = await call(client, "DELETE", "/root", admin)
    assert (status, refused["error"]["code"]) == (409, "conflict")
    assert (await call(client, "GET", "", admin))[0] == 200


async def test_the_first_key_must_be_an_admins(client: TestClient) -> None:
    status, body = await call(client, "POST", "", name="ci", role="inference")
    assert (status, body["error"]["field"]) == (400, "role")
    assert (await call(client, "GET", ""))[0] == 200, "still open"


async def test_while_the_store_is_away_changes_say_so(client: TestClient, store: Store) -> None:
    _, root = await call(client, "POST", "", name="root", role="admin")
    store.is_away = True
    status, body = await call(client, "POST", "", root["key"], name="x", role="viewer")
    assert (status, body["error"]["code"]) == (503, "store_unavailable")
    assert (await call(client, "GET", "", root["key"]))[0] == 200
