import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.models.assignments import Assignment, DesiredAdapter, needs_reload
from arriero.shared.models.engine_options import EngineOptions
from arriero.shared.sampling import SamplingChoices

adapter = TypeAdapter(Assignment)
PLAIN = Assignment(name="m", source="file:///m.gguf")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"name": "other"}, False),
        ({"chat_template": "{{ messages }}"}, False),
        ({"sampling": SamplingChoices(temperature=0.5)}, False),
        ({"slots": 2}, False),
        ({"slots": 4}, False),
        ({"slots": 5}, True),
        ({"context_size": 64}, True),
        ({"source": "file:///n.gguf"}, True),
        ({"sha256": "0" * 64}, True),
        ({"engine": EngineOptions(gpu_layers=1)}, True),
        ({"projector": "file:///p.gguf"}, True),
        ({"adapters": (DesiredAdapter(name="a", source="file:///a.gguf"),)}, False),
    ],
)
def test_what_needs_a_reload(change: dict[str, Any], expected: bool) -> None:
    assert needs_reload(PLAIN, replace(PLAIN, **change), loaded_slots=4) is expected


def test_all_slots_come_back_without_a_reload() -> None:
    assert not needs_reload(replace(PLAIN, slots=2), PLAIN, loaded_slots=4)


def test_durations_and_sizes_are_written_as_people_write_them() -> None:
    body = {"name": "m", "source": "hf://o/r:Q8_0", "engine": {"max_stall": "500ms"}}
    engine = adapter.validate_json(json.dumps(body)).engine
    assert engine == EngineOptions(max_stall=0.5)
    assert adapter.validate_json(adapter.dump_json(replace(PLAIN, engine=engine))).engine == engine


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "a\n"},
        {"source": "m.gguf"},
        {"sha256": "A" * 64},
        {"slots": 0},
        {"slots": 257},
        {"chat_template": ""},
        {"engine": {"max_stall": "0"}},
        {"engine": {"draft_model": "draft.gguf"}},
        {"engine": {"draft_model": ""}},
        {"engine": {"draft_model": "/" + "a" * 4096}},
        {"engine": {"draft_model": "http://"}},
        {"http_hosts": ["http://files.lan"]},
        {"projector": "p.gguf"},
        {"adapters": [{"name": "a"}]},
        {"adapters": [{"name": "a:b", "source": "file:///a.gguf"}]},
        {"adapters": [{"name": "a", "source": "file:///a.gguf", "scale": 101}]},
        {"more": 1},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_json(json.dumps({"name": "m", "source": "file:///m"} | wrong))


@pytest.mark.parametrize("draft", ["/models/draft.gguf", "hf://o/r:Q8_0", "https://h/d.gguf"])
def test_a_draft_model_is_a_path_or_a_source(draft: str) -> None:
    body = {"name": "m", "source": "file:///m.gguf", "engine": {"draft_model": draft}}
    assert adapter.validate_json(json.dumps(body)).engine.draft_model == draft
