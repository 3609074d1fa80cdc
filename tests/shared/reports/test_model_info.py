"""What an agent says of its model is bounded."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference.abilities import ABILITIES
from arriero.shared.models.assignments import MAX_MODEL_NAME
from arriero.shared.reports.model_info import MAX_TASKS, ModelInfo

LEAST = {"name": "m", "architecture": "llama", "parameters": 8, "size_bytes": 0, "context_size": 16}


def decoded(**fields: Any) -> ModelInfo:
    return TypeAdapter(ModelInfo).validate_json(json.dumps(LEAST | fields))


def test_pictures_take_the_task_and_of_an_upstream_the_ability_too() -> None:
    assert decoded().abilities == ABILITIES - {"vision", "audio"}
    assert decoded(tasks=["generate", "vision"]).abilities == ABILITIES - {"audio"}
    assert decoded(tasks=["generate", "audio"]).abilities == ABILITIES - {"vision"}
    upstream = {"kind": "vllm", "address": "h:1", "abilities": ["messages", "vision", "later"]}
    assert decoded(upstream=upstream).abilities == {"messages"}
    seeing = decoded(upstream=upstream, tasks=["generate", "vision"])
    assert seeing.abilities == {"messages", "vision"}


def test_the_longest_name_and_the_most_tasks_are_taken() -> None:
    info = decoded(name="m" * MAX_MODEL_NAME, tasks=["embed"] * MAX_TASKS)
    assert (len(info.name), len(info.tasks)) == (MAX_MODEL_NAME, MAX_TASKS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "m" * (MAX_MODEL_NAME + 1)),
        ("tasks", ["embed"] * (MAX_TASKS + 1)),
        ("tasks", ["sing"]),
        ("kernels", "most"),
        ("context_size", -1),
        ("mood", "good"),
    ],
)
def test_other_values_are_refused_by_their_field(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        decoded(**{field: value})
