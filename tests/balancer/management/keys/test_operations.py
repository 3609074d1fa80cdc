"""The routes of keys are described, and say what needs no key."""

from typing import Any

import pytest

from arriero.balancer.api.access.permissions import INFERENCE, MANAGEMENT, Needs, Table
from arriero.balancer.management.keys.operations import OPERATIONS
from arriero.balancer.management.keys.routes import routes
from tests.balancer import documents

DOCUMENTS: list[tuple[Any, Table]] = [
    (documents.inference(), INFERENCE),
    (documents.management(), MANAGEMENT),
]


def test_every_route_is_described() -> None:
    keeper: Any = None
    described = {(each.method, each.path) for each in OPERATIONS}
    assert described == {(each.method, each.path) for each in routes(keeper)}


@pytest.mark.parametrize(("document", "table"), DOCUMENTS)
def test_the_documents_say_what_needs_a_key(document: Any, table: Table) -> None:
    assert document["security"] == [{"bearer": []}, {"api_key": []}, {}]
    assert document["components"]["securitySchemes"].keys() == {"bearer", "api_key"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            is_keyless = table[(method.upper(), path)] is Needs.NOTHING
            assert (operation.get("security") == []) == is_keyless, f"{method} {path}"
            assert "401" in operation["responses"]
