"""What handlers have around them."""

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from arriero.balancer.api.openai.batches.boundary import jobs_for
from arriero.balancer.api.transport.door_reports import DOOR_REPORTS, DoorReports
from arriero.balancer.jobs.blobs.port import BlobsAway
from arriero.balancer.store.port import StoreAway
from arriero.shared.errors import NotSupported, StoreUnavailable


def request() -> web.Request:
    app = web.Application()
    app[DOOR_REPORTS] = DoorReports()
    return make_mocked_request("GET", "/v1/files", app=app)


@pytest.mark.parametrize("error", [StoreAway("at 10.0.0.1"), BlobsAway("/srv/secret")])
def test_where_things_lie_is_not_told(error: Exception) -> None:
    with pytest.raises(StoreUnavailable) as told, jobs_for(request(), object()):  # type: ignore[arg-type]
        raise error
    assert str(error) not in told.value.message


def test_without_jobs() -> None:
    with pytest.raises(NotSupported, match="--files"), jobs_for(request(), None):
        pass
