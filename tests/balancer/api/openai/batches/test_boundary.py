"""What handlers have around them."""

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from arriero.balancer.api.openai.batches.boundary import answering, check_after, jobs_for
from arriero.balancer.api.transport.fault_reports import FAULT_REPORTS, FaultReports
from arriero.balancer.jobs.blobs import BlobsAway
from arriero.balancer.store.port import StoreAway
from arriero.shared.errors import InvalidRequest, NotSupported, StoreUnavailable


def request() -> web.Request:
    app = web.Application()
    app[FAULT_REPORTS] = FaultReports()
    return make_mocked_request("GET", "/v1/files", app=app)


@pytest.mark.parametrize("error", [StoreAway("at 10.0.0.1"), BlobsAway("/srv/secret")])
def test_where_things_lie_is_not_told(error: Exception) -> None:
    with pytest.raises(StoreUnavailable) as told, jobs_for(request(), object()):  # type: ignore[arg-type]
        raise error
    assert str(error) not in told.value.message


def test_without_jobs() -> None:
    with pytest.raises(NotSupported, match="--files"), jobs_for(request(), None):
        pass


async def test_what_is_made_is_the_answer() -> None:
    async def make(_request: web.Request, _jobs: object) -> dict[str, int]:
        return {"n": 1}

    response = await answering(object(), make)(request())  # type: ignore[arg-type]
    assert isinstance(response, web.Response)
    assert response.body == b'{"n":1}'
    with pytest.raises(NotSupported):
        await answering(None, make)(request())


async def test_a_page_begins_behind_something_of_its_caller() -> None:
    class Things:
        async def has(self, id: str, owner: str | None) -> bool:
            return (id, owner) == ("f", "ann")

    await check_after(None, "bob", Things())
    await check_after("f", "ann", Things())
    with pytest.raises(InvalidRequest, match="`after`"):
        await check_after("f", "bob", Things())
