"""The estimate of a request's memory against what the interpreter really takes."""

import gc
import json
import tracemalloc
from collections.abc import Callable

import pytest

from arriero.balancer.api.native.requests import parse_generate
from arriero.balancer.fleet.footprint import MAX_LOOKS, OVERHEAD, UNSEEN, footprint, footprints
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.inference import GenerateRequest
from arriero.shared.queries import Embed


def chat(*contents: object, **more: object) -> bytes:
    messages = [{"role": "user", "content": each} for each in contents]
    return json.dumps({"messages": messages, **more}, ensure_ascii=False).encode()


def tools(value: object) -> bytes:
    function = {"name": "f", "parameters": {"type": "object", "x": value}}
    return chat("a", tools=[{"type": "function", "function": function}])


def taken_by(body: bytes) -> tuple[GenerateRequest, int]:
    parse_generate(chat("a"))  # the first one builds the schema
    gc.freeze()  # what all tests have imported is not looked at again
    tracemalloc.start()
    request = parse_generate(body)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return request, taken


BODIES: dict[str, Callable[[], bytes]] = {
    "text": lambda: chat("a" * 10**6),
    "text with an emoji": lambda: chat("😀" + "a" * 10**6),
    "Chinese": lambda: chat("你好" * 10**5),
    "messages": lambda: chat(*[f"hello there, {each}" for each in range(4000)]),
    "parts": lambda: chat([{"type": "text", "text": f"number {each}"} for each in range(2000)]),
    "token ids": lambda: json.dumps({"prompt": list(range(1000, 101_000))}).encode(),
    "numbers": lambda: tools([1000.5 + each for each in range(50_000)]),
    "strings": lambda: tools([f"s{each}" for each in range(50_000)]),
    "objects": lambda: tools([{f"a{each}": 1} for each in range(5000)]),
    "empty lists": lambda: tools([[] for _ in range(5000)]),
    "nested": lambda: tools([[[[each, "x"]]] for each in range(2000)]),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_estimate_is_close_to_what_is_taken_and_hardly_below(name: str) -> None:
    request, taken = taken_by(BODIES[name]())
    assert taken * 0.95 <= footprint(request) <= taken * 2 + 2 * OVERHEAD


def test_what_has_too_many_values_to_look_at_counts_as_much_as_any_can_take() -> None:
    request, taken = taken_by(tools([{f"a{each}": [each]} for each in range(MAX_LOOKS)]))
    assert taken < UNSEEN < footprint(request)


def test_queries_are_measured_too() -> None:
    query = QueryRequest(kind="embed", parts=tuple(Embed(inputs=("x" * 1000,)) for _ in range(10)))
    assert 10_000 < footprint(query) < 14_000 + OVERHEAD


def test_a_value_with_too_many_parts_counts_by_its_json() -> None:
    many = [{"a": [{"b": number}]} for number in range(2 * MAX_LOOKS)]
    assert footprint(many) > UNSEEN
    assert len(json.dumps(many)) < footprints([many]) < UNSEEN
    assert footprints(["a" * 1000] * 3) < 3 * 1100
