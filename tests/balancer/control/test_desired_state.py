"""Desired models, and the JSON in which operators write them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.control.desired_state import (
    MAX_ALIASES,
    MAX_BYTES,
    MAX_MODELS,
    MAX_PROBLEMS_SHOWN,
    MAX_VALUES,
    DesiredModel,
    DesiredState,
    InvalidDesiredState,
    changed_models,
    desired_state_json,
    parse_desired_state,
)
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from arriero.shared.models.assignments import Assignment, DesiredAdapter
from arriero.shared.models.engine_options import EngineOptions
from arriero.shared.sampling import SamplingChoices

ADAPTER = TypeAdapter(DesiredModel)
SUPPORT = DesiredAdapter(name="support", source="file:///s.gguf", scale=0.5)


def test_the_assignment_of_a_model_has_all_that_the_engine_needs_and_nothing_else() -> None:
    model = DesiredModel(
        name="m",
        aliases=("gpt-4o-mini",),
        source="file:///m.gguf",
        sha256="0" * 64,
        projector="file:///p.gguf",
        adapters=(SUPPORT,),
        slots=8,
        context_size=8192,
        engine=EngineOptions(gpu_layers=-1),
        chat_template="{{ messages }}",
        sampling=SamplingChoices(temperature=0.7),
        idle_timeout=900.0,
        preload=False,
    )
    assert model.assignment == Assignment(
        name="m",
        source="file:///m.gguf",
        sha256="0" * 64,
        projector="file:///p.gguf",
        adapters=(SUPPORT,),
        slots=8,
        context_size=8192,
        engine=EngineOptions(gpu_layers=-1),
        chat_template="{{ messages }}",
        sampling=SamplingChoices(temperature=0.7),
    )
    assert model.names == ("m", "gpt-4o-mini")
    assert model.adapted_names == ("m:support",)


def test_a_name_and_a_source_are_enough() -> None:
    model = ADAPTER.validate_json('{"name": "m", "source": "file:///m.gguf"}')
    assert model.assignment == Assignment(name="m", source="file:///m.gguf")
    assert (model.preload, model.idle_timeout, model.agents.replicas) == (True, None, "all")


@pytest.mark.parametrize(
    "fields",
    [
        '"projector": "p.gguf"',
        '"adapters": [{"name": "support"}]',
        '"agents": {"replicas": -1}',
        '"agents": {"replicas": "some"}',
        '"agents": {"replica": 1}',
        '"aliases": [""]',
        f'"aliases": {["a"] * (MAX_ALIASES + 1)}'.replace("'", '"'),
        '"idle_timeout": 0',
        '"idle_timeout": "soon"',
        '"slots": 0',
        '"slots": 257',
        '"context_size": 4',
        '"preload": "yes"',
        '"color": "red"',
    ],
)
def test_what_is_wrong_is_refused(fields: str) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_json(f'{{"name": "m", "source": "file:///m.gguf", {fields}}}')


@pytest.mark.parametrize("fields", ['"projector": null', '"adapters": []', '"sha256": null'])
def test_what_is_empty_may_be_written(fields: str) -> None:
    ADAPTER.validate_json(f'{{"name": "m", "source": "file:///m.gguf", {fields}}}')


def test_what_changed() -> None:
    one, two = (DesiredModel(name=name, source="file:///x") for name in ("one", "two"))
    before = DesiredState(models=(one, two))
    other = replace(one, slots=2)
    after = DesiredState(models=(replace(two, name="new"), other))
    assert changed_models(before, after) == "+ new, - two, ~ one"
    assert changed_models(before, DesiredState(models=(two, one))) == "their order"
    assert changed_models(before, before) is None


EXAMPLE: dict[str, Any] = {
    "name": "qwen3-8b",
    "aliases": ["gpt-4o-mini"],
    "source": "hf://org/repo/file.gguf@main",
    "sha256": None,
    "projector": "hf://org/repo/mmproj.gguf",
    "adapters": [{"name": "support", "source": "file:///models/support.gguf", "scale": 0.5}],
    "agents": {"labels": {"gpu": "yes"}, "replicas": 2},
    "slots": 8,
    "context_size": 8192,
    "engine": {"gpu_layers": -1, "max_stall": "500ms"},
    "chat_template": None,
    "sampling": {"temperature": 0.7},
    "idle_timeout": "15m",
    "preload": True,
}


def named(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "source": "file:///m.gguf", **fields}


def parse(*models: dict[str, object]) -> DesiredState:
    return parse_desired_state(json.dumps({"models": models}))


def problems_of(body: object) -> list[tuple[str | None, str]]:
    with pytest.raises(InvalidDesiredState) as caught:
        parse_desired_state(json.dumps(body))
    return [(problem.field, problem.sentence) for problem in caught.value.problems]


def test_the_example_is_read() -> None:
    [model] = parse(EXAMPLE).models
    assert model.idle_timeout == 900.0
    assert model.engine.max_stall == 0.5
    assert model.agents.replicas == 2


def test_what_is_written_is_read_as_the_same_state() -> None:
    state = parse(EXAMPLE, named("other", preload=False))
    written = desired_state_json(state)
    assert parse_desired_state(written) == state
    assert json.loads(written)["models"][0] == {
        **EXAMPLE,
        "idle_timeout": 900.0,
        "engine": {"gpu_layers": -1, "max_stall": 0.5},
    }


def test_sources_without_tls_are_on_hosts_that_an_operator_names() -> None:
    models = [
        named("a", source="http://files.lan/a.gguf", projector="http://files.lan:81/p.gguf"),
        named(
            "b",
            engine={"draft_model": "http://files.lan/d.gguf"},
            adapters=[{"name": "x", "source": "http://other.lan/x.gguf"}],
        ),
        named("c", source="http://127.0.0.1/c.gguf", engine={"draft_model": "/d.gguf"}),
    ]
    body = json.dumps({"models": models})
    with pytest.raises(InvalidDesiredState) as caught:
        parse_desired_state(body, http_hosts=("files.lan:80",))
    assert [problem.field for problem in caught.value.problems] == [
        "models[0].projector",
        "models[1].adapters[0].source",
    ]
    assert caught.value.problems[1].sentence == (
        "`models[1].adapters[0].source` must begin with https://; http:// is only for loopback "
        "addresses and for hosts that the balancer is started with: --model-source-http "
        'other.lan, not "http://other.lan/x.gguf"'
    )
    assert parse_desired_state(body, http_hosts=("files.lan", "other.lan")).models
    assert parse_desired_state(body).models, "what was saved before is read without the flag"


def test_every_problem_is_named_at_once() -> None:
    body = {"models": [named("a b", slots=0), {"name": "b", "engine": {"gpus": 1}}], "model": 1}
    assert problems_of(body) == [
        (
            "models[0].name",
            '`models[0].name` must have no spaces and no control characters, not "a b"',
        ),
        ("models[0].slots", "`models[0].slots` must be at least 1, not 0"),
        ("models[1].source", "`models[1].source` is missing"),
        ("models[1].engine.gpus", "unknown field `models[1].engine.gpus`"),
        ("model", "unknown field `model`"),
    ]


def test_a_name_may_be_given_once() -> None:
    body = {"models": [named("a", aliases=["b"]), named("b", aliases=["c", "a", "c"])]}
    assert problems_of(body) == [
        (
            "models[1].name",
            '`models[1].name` must be unique, but `models[0].aliases[0]` is also "b"',
        ),
        (
            "models[1].aliases[1]",
            '`models[1].aliases[1]` must be unique, but `models[0].name` is also "a"',
        ),
        (
            "models[1].aliases[2]",
            '`models[1].aliases[2]` must be unique, but `models[1].aliases[0]` is also "c"',
        ),
    ]


def test_what_is_wrong_with_an_adapter_is_named_at_its_field() -> None:
    adapters = [{"name": "a", "source": "a.gguf"}]
    [(field, _)] = problems_of({"models": [named("m", adapters=adapters)]})
    assert field == "models[0].adapters[0].source"
    [(field, _)] = problems_of({"models": [named("m", projector="p.gguf")]})
    assert field == "models[0].projector"


def test_an_adapters_name_may_be_given_once_and_be_no_other_model() -> None:
    one = {"name": "a", "source": "file:///a.gguf"}
    body = {"models": [named("m", adapters=[one, one]), named("n", aliases=["m:a"])]}
    assert [field for field, _ in problems_of(body)] == [
        "models[0].adapters[1].name",
        "models[1].aliases[0]",
    ]


def test_the_error_names_the_first_problems_and_counts_the_others() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(*({} for _ in range(100)))
    assert caught.value.message.startswith("`models[0].name` is missing; `models[0].source` is")
    assert caught.value.message.endswith(f"; and {200 - MAX_PROBLEMS_SHOWN} more")
    assert caught.value.field == "models[0].name"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"models": 3}', b"\xff", b"[" * 5000])
def test_what_is_no_desired_state_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidDesiredState):
        parse_desired_state(body)


def test_there_are_at_most_so_many_models() -> None:
    assert len(parse(*(named(f"m{n}") for n in range(MAX_MODELS))).models) == MAX_MODELS
    [(field, _)] = problems_of({"models": [{}] * (MAX_MODELS + 1)})
    assert field == "models"


def test_what_would_take_long_to_check_is_refused_before_it_is_checked() -> None:
    with pytest.raises(RequestTooLarge, match=f"at most {MAX_BYTES} bytes"):
        parse_desired_state(b" " * (MAX_BYTES + 1))
    many = {str(number): 1 for number in range(MAX_VALUES)}
    with pytest.raises(RequestTooLarge, match=f"at most {MAX_VALUES} values"):
        parse(named("m", engine=many))
