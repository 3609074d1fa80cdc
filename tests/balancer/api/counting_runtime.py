"""A fake fleet runtime that answers every question at once, with the same outcome."""

from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.queries.query_handle import Outcome, QueryHandle
from arriero.shared.inference import RequestId
from tests.balancer.api.fake_runtime import FakeFleetRuntime


class CountingFleetRuntime(FakeFleetRuntime):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
        self.questions: list[QueryRequest] = []

    def ask(self, query_request: QueryRequest) -> QueryHandle:
        self.questions.append(query_request)
        handle = QueryHandle(RequestId("q"), lambda _id: None)
        handle.settle(self.outcome)
        return handle
