"""A fake fleet runtime that answers every question at once, with the same outcome."""

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.runtime.stream import Outcome, QueryHandle
from arriero.shared.inference import RequestId
from tests.balancer.api.fake_runtime import FakeFleetRuntime


class CountingFleetRuntime(FakeFleetRuntime):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
        self.questions: list[QueryRequest] = []

    def ask(self, query_request: QueryRequest, *, caller: Caller = ANONYMOUS) -> QueryHandle:
        self.questions.append(query_request)
        self.callers.append(caller)
        handle = QueryHandle(RequestId("q"), lambda _id: None)
        handle.settle(self.outcome)
        return handle
