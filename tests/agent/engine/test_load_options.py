"""Options of the engine, and that none is forgotten wherever options count."""

import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.agent.cpu_cores import default_threads
from arriero.agent.engine.load_options import Counts, LoadOptions, where_options_count
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity
from arriero.agent.gguf.header import read_header
from arriero.agent.gguf.memory_estimate import ModelFileSizes, bytes_beside, estimate
from arriero.agent.model_identity import fingerprint, origin_of
from arriero.shared.models.assignments import Assignment
from arriero.shared.models.engine_options import EngineOptions
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.settings.declaration import flag_of
from demo.conversations import DRAFT
from tests.agent.engine.changed_options import changes
from tests.agent.fakes import ByteVocab

ROOT = Path(__file__).parents[3]
OPTIONS = LoadOptions(slots=3, context_size=1030, threads=1)
MODEL = ModelIdentity(architecture="a", parameters=1, size_bytes=2, digest="d")


def test_defaults() -> None:
    assert LoadOptions().model_dump() == {
        "slots": 4,
        "context_size": "auto",
        "kv_cells": "auto",
        "fit": "on",
        "fit_target": 2**30,
        "fit_ctx": 4096,
        "fit_cache_type": None,
        "kv_layout": "auto",
        "swa_full": "auto",
        "flash_attn": "auto",
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "host_cache": 2**30,
        "threads": default_threads(),
        "max_stall": 0.5,
        "threads_batch": None,
        "batch_size": None,
        "ubatch_size": 512,
        "device": None,
        "rpc": None,
        "gpu_layers": "auto",
        "split_mode": "layer",
        "tensor_split": None,
        "main_gpu": 0,
        "n_cpu_moe": 0,
        "override_tensor": None,
        "kv_offload": True,
        "op_offload": True,
        "load_mode": "auto",
        "mlock": False,
        "numa": "none",
        "rope_scaling": None,
        "rope_scale": None,
        "rope_freq_base": None,
        "yarn_orig_ctx": None,
        "yarn_ext_factor": None,
        "yarn_attn_factor": None,
        "yarn_beta_slow": None,
        "yarn_beta_fast": None,
        "override_kv": None,
        "kernels": "auto",
        "projector": None,
        "speculate": 0,
        "draft_model": None,
        "deterministic": False,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"kv_cells": 500, "context_size": 501},
        {"deterministic": True, "kv_layout": "unified"},
        {"deterministic": True, "projector": Path("p.gguf")},
        {"flash_attn": "off", "cache_type_v": "q8_0"},
        {"ubatch_size": 1024, "batch_size": 512},
        {"rope_scaling": "none", "rope_scale": 2.0},
        {"load_mode": "dio", "mlock": True},
    ],
)
def test_what_does_not_go_together(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LoadOptions(**options)


def test_a_draft_model_drafts_without_a_setting_of_how_much() -> None:
    assert LoadOptions().max_draft == 0
    assert LoadOptions(speculate=3).max_draft == 3
    drafting = LoadOptions(draft_model=DRAFT)
    assert drafting.max_draft == 8
    assert drafting.without_drafts == LoadOptions()


def test_a_draft_model_does_without_what_is_about_another_file() -> None:
    drafting = LoadOptions(
        draft_model=DRAFT,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        n_cpu_moe=3,
        override_tensor="exps=CPU",
        override_kv="a.b=int:1",
        gpu_layers=7,
    )
    assert drafting.for_draft == LoadOptions(gpu_layers=7)


def test_a_step_has_as_many_tokens_as_are_computed_at_once_unless_more_is_said() -> None:
    assert LoadOptions().step_tokens == 512
    assert LoadOptions(ubatch_size=2048).step_tokens == 2048
    assert LoadOptions(batch_size=2048).step_tokens == 2048


def test_the_view_has_what_is_desired_and_no_path() -> None:
    options = LoadOptions(threads=2, kv_cells=8192, draft_model=DRAFT, max_stall=0.25)
    assert {name: value for name, value in asdict(options.view).items() if value is not None} == {
        "gpu_layers": "auto",
        "kv_cells": 8192,
        "fit": "on",
        "fit_target": 2**30,
        "fit_ctx": 4096,
        "host_cache": 2**30,
        "threads": 2,
        "max_stall": 0.25,
        "speculate": 8,
        "deterministic": False,
        "swa_full": "auto",
        "flash_attn": "auto",
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "ubatch_size": 512,
        "split_mode": "layer",
        "main_gpu": 0,
        "n_cpu_moe": 0,
        "kv_offload": True,
        "op_offload": True,
        "load_mode": "auto",
        "mlock": False,
        "numa": "none",
    }


class TestNoneIsForgotten:
    """Each test names the options that are forgotten in its place, or said wrongly of it."""

    def test_each_says_where_it_counts(self) -> None:
        marks = {
            name: [mark for mark in field.metadata if isinstance(mark, Counts)]
            for name, field in LoadOptions.model_fields.items()
        }
        assert [name for name, found in marks.items() if len(found) != 1] == []
        reasons = [(name, asdict(counts)) for name, counts in where_options_count()]
        assert [name for name, each in reasons if not all(each.values())] == []

    def test_each_is_obeyed(self) -> None:
        folders = (ROOT / "agent" / "engine", ROOT / "agent" / "gguf")
        files = [file for folder in folders for file in folder.rglob("*.py")]
        source = "".join(file.read_text() for file in files)
        read = {*re.findall(r"options\.(\w+)", source), *re.findall(r"\bself\.(\w+)", source)}
        assert [name for name in LoadOptions.model_fields if name not in read] == []

    def test_in_the_fingerprint(self) -> None:
        self._check("fingerprint", lambda options: fingerprint(MODEL, options, ByteVocab(), ()))

    def test_in_the_identity_of_the_cache(self) -> None:
        self._check("cache", lambda options: origin_of(MODEL, options, None))

    def test_in_the_estimate_of_memory(self) -> None:
        with (ROOT / "demo" / "arriero-demo.gguf").open("rb") as file:
            header = read_header(file)
        # Drafts count where their rows are what takes most, attention where there are many cells.
        header.lengths["tokenizer.ggml.tokens"] = 2 * 10**5
        header.metadata[f"{header.architecture}.expert_count"] = 8
        options = OPTIONS.model_copy(update={"context_size": 8030, "gpu_layers": -1})

        def needed(options: LoadOptions) -> tuple[int, int | None]:
            if options.draft_model is not None:
                options = options.model_copy(update={"draft_model": DRAFT})
            beside = bytes_beside(options)
            assert beside is not None
            found = estimate(ModelFileSizes(header, {}, 10**6), options, beside=beside)
            assert found is not None
            return found.total, found.on_gpus(options)

        self._check("memory", needed, options)

    def test_in_the_desired_state(self) -> None:
        desired = {each.name for each in (*fields(EngineOptions), *fields(Assignment))}
        wrong = [
            name
            for name, counts in where_options_count()
            if (name in desired) != (counts.desired is True)
        ]
        assert wrong == []
        assert {each.name for each in fields(EngineOptions)} <= set(LoadOptions.model_fields)

    def test_with_the_same_bounds_there(self) -> None:
        here, there = (
            TypeAdapter[Any](kind).json_schema()["properties"]
            for kind in (LoadOptions, EngineOptions)
        )
        assert [
            name
            for name in there
            if name != "draft_model"  # a file there, a source or a path here
            and _bounds(here[name]) != _bounds(there[name])
        ] == []

    def test_in_the_view(self) -> None:
        shown = {"slots", *(each.name for each in (*fields(EngineOptions), *fields(ModelInfo)))}
        wrong = [
            name
            for name, counts in where_options_count()
            if (name in shown) != (counts.view is True)
        ]
        assert wrong == []

    def test_in_the_docs(self) -> None:
        settings, protocol, uses = (
            (ROOT / "docs" / name).read_text()
            for name in ("settings.md", "protocol.md", "engine-settings.md")
        )
        tables = _section(protocol, "EngineOptions") + _section(protocol, "Assignment")
        assert [
            name
            for name, counts in where_options_count()
            if f"| `{flag_of(name)} " not in settings
            or f"`{flag_of(name)}`" not in uses
            or (counts.desired is True and f"| `{name}` |" not in tables)
        ] == []

    def _check(
        self,
        place: Literal["fingerprint", "cache", "memory"],
        outcome: Any,
        options: LoadOptions = OPTIONS,
    ) -> None:
        plain = outcome(options)
        wrong = [
            name
            for name, counts in where_options_count()
            if any(outcome(each) != plain for each in changes(options, name))
            != (getattr(counts, place) is True)
        ]
        assert wrong == []


def _section(page: str, name: str) -> str:
    return page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """The first of what it may be, without words about it."""
    first = schema.get("anyOf", [schema])[0]
    words = ("title", "default", "description")
    return {name: value for name, value in first.items() if name not in words}
