"""One request: any legal life, watched from outside."""

from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import Decision, Deliver, Finish, LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import MoveReason
from arriero.balancer.fleet.requests.request import Request
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import Done, Failed, RequestId, Token
from tests.balancer.fleet.builders import ended, request

LIMITS = Limits(
    buffered_request_timeout=4.0, first_token_timeout=6.0, token_timeout=2.0, request_timeout=15.0
)


class RequestMachine(RuleBasedStateMachine):
    """Keeps its own clock and its own idea of each stage's time."""

    @initialize()
    def accept(self) -> None:
        self.now = 50.0
        self.lifecycle = Request(RequestId("r"), request(), LIMITS, self.now)
        self.waited = 0.0
        self.stage_began = self.now
        self.num_ends = 0
        self.num_moves = 0
        self.gains: list[int] = []

    def is_in(self, *states: str) -> bool:
        return self.num_ends == 0 and self.lifecycle.state in states

    def follow(self, decisions: list[Decision]) -> None:
        assert self.num_ends == 0
        finishes = [each for each in decisions if isinstance(each, Finish)]
        ends = [
            d for d in decisions if isinstance(d, Deliver) and isinstance(d.event, Done | Failed)
        ]
        self.num_ends += len(finishes)
        assert len(ends) <= len(finishes) <= 1
        for finish in finishes:
            timings = finish.ending.timings
            assert 0 <= timings.queue_ms <= timings.total_ms + 1e-6
            assert timings.moves == self.num_moves

    @precondition(lambda self: self.num_ends == 0)
    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def time_goes_by(self, seconds: float) -> None:
        if self.lifecycle.state == "queued":
            self.waited += seconds
        self.now += seconds
        error = self.lifecycle.overdue(self.now)
        assert (error is None) == (self.now < self.lifecycle.deadline)
        if error is not None:
            self.follow(self.lifecycle.failed(error, self.now))

    @precondition(lambda self: self.is_in("queued"))
    @rule()
    def is_assigned(self) -> None:
        self.lifecycle.assigned(LinkId(1), "host", self.now)
        self.stage_began = self.now

    @precondition(lambda self: self.is_in("assigned", "streaming"))
    @rule(reason=st.none() | st.sampled_from(get_args(MoveReason)))
    def comes_back(self, reason: MoveReason | None) -> None:
        if reason is None:
            self.lifecycle.came_back(self.now)
        else:
            self.lifecycle.moved(reason, self.now)
            self.num_moves += 1

    @precondition(lambda self: self.is_in("assigned", "streaming"))
    @rule(num_tokens=st.integers(0, 3))
    def gains_tokens(self, num_tokens: int) -> None:
        ids = tuple(range(num_tokens))
        self.gains += ids
        self.lifecycle.gained(Token("ab", "content", ids), self.now)
        self.stage_began = self.now

    @precondition(lambda self: self.is_in("assigned", "streaming"))
    @rule(is_good=st.booleans())
    def ends(self, is_good: bool) -> None:
        error = EngineFailed("broken")
        self.follow(
            self.lifecycle.done(ended("r"), self.now)
            if is_good
            else self.lifecycle.failed(error, self.now)
        )

    @precondition(lambda self: self.num_ends == 0)
    @rule()
    def client_leaves(self) -> None:
        self.follow([self.lifecycle.gone(self.now)])

    @precondition(lambda self: self.num_ends == 1)
    @rule()
    def nothing_more_happens(self) -> None:
        with pytest.raises(ValueError, match="r"):
            self.lifecycle.gained(Token("late"), self.now)
        with pytest.raises(ValueError, match="ended already"):
            self.lifecycle.gone(self.now)
        with pytest.raises(ValueError, match="has ended"):
            self.lifecycle.assigned(LinkId(2), "host", self.now)

    @invariant()
    def deadline_is_that_of_its_stage(self) -> None:
        self.lifecycle.check_integrity()
        if self.num_ends:
            assert self.lifecycle.is_ended
            return
        stage = {
            "queued": self.now + LIMITS.buffered_request_timeout - self.waited,
            "assigned": self.stage_began + LIMITS.first_token_timeout,
            "streaming": self.stage_began + LIMITS.token_timeout,
        }[self.lifecycle.state]
        assert self.lifecycle.deadline == min(stage, 50.0 + LIMITS.request_timeout)
        assert self.lifecycle.waited(self.now) == self.waited

    @invariant()
    def the_next_agent_goes_on_after_what_was_delivered(self) -> None:
        continuation = self.lifecycle.continuation
        assert list(continuation.tokens if continuation else ()) == self.gains


TestRequestMachine = RequestMachine.TestCase
TestRequestMachine.settings = settings(stateful_step_count=30, deadline=None)
