from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.control.desired_state import (
    MAX_ALIASES,
    DesiredModel,
    DesiredState,
    changed_models,
)
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
