"""Requests that have not ended, as others find and see them."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.requests.requests import Requests
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import GenerateRequest, RequestId, Token
from tests.balancer.fleet.builders import request
from tests.balancer.fleet.requests.test_requests import requests_with_agent

R = RequestId("r")


def streaming() -> Requests:
    requests, _ = requests_with_agent()
    requests.admit(R, request(), ANONYMOUS, 0.0)
    lifecycle = requests.get(R)
    assert lifecycle is not None
    requests.gained([(lifecycle, Token("ab", "content", (1, 2)))], 1.0)
    return requests


def test_kept_tokens_are_those_of_requests_that_have_not_ended() -> None:
    requests = streaming()
    assert (len(requests), R in requests, requests.tokens_kept) == (1, True, 2)
    lifecycle = requests.get(R)
    assert lifecycle is not None
    requests.fail(lifecycle, EngineFailed("broken"), 2.0)
    assert (len(requests), R in requests, requests.tokens_kept) == (0, False, 0)
    requests.check_integrity()


def test_a_view_is_of_now() -> None:
    requests = streaming()
    [early], [late] = requests.views(1.0), requests.views(3.0)
    assert late == replace(early, age_seconds=3.0)


def test_those_that_wait_are_demands() -> None:
    requests = streaming()
    requests.admit(RequestId("s"), request("llama"), ANONYMOUS, 5.0)
    assert list(requests.demands()) == [("llama", 1, 5.0)]


def test_a_miscount_is_found() -> None:
    requests = streaming()
    requests.tokens_kept += 1
    with pytest.raises(RuntimeError, match="miscounted"):
        requests.check_integrity()


def test_how_agents_were_chosen_is_counted() -> None:
    requests, _ = requests_with_agent(slots=2)
    prompt = GenerateRequest(prompt="A conversation that was long. " * 40)
    for id in ("1", "2"):
        requests.admit(RequestId(id), prompt, ANONYMOUS, 0.0)
    view = requests.routing_view
    assert (view.num_cold, view.num_warm, view.num_waited) == (1, 1, 0)
    assert view.num_beliefs > 0
