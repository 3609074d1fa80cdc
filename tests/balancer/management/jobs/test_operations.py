"""What the document says of batches."""

from arriero.balancer.management.jobs.operations import OPERATIONS


def test_both_routes_are_described() -> None:
    assert [(each.method, each.path) for each in OPERATIONS] == [
        ("GET", "/api/v1/batches"),
        ("POST", "/api/v1/batches/{id}/cancel"),
    ]
