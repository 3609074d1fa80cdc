"""The fields that programs read."""

import json
from dataclasses import replace

from arriero.balancer.fleet.view import ServedView, SlotsView
from arriero.balancer.management.serializers import (
    agent_json,
    dumps,
    listed_json,
    request_json,
    snapshot_json,
    throughput_json,
)
from arriero.balancer.management.throughput import Throughput
from arriero.shared.inference import AgentId, RequestId, Waiting
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import (
    Assignment,
    Device,
    Download,
    HostFacts,
    MemoryPart,
    Work,
)
from arriero.shared.reports.statistics import Cells, DeviceMemory, Histogram, Statistics
from tests.balancer.management.views import MODEL, agent_view, fleet_view, request_view

RATES = Throughput(seconds=1.0, total=12.3456, agents={AgentId("id-a"): 12.3456})


def test_an_agent() -> None:
    issue = Issue(code="slow_disk", message="reading takes long")
    agent = agent_json(agent_view("a", busy=1, num_tokens=40, issues=(issue,)), 12.3456)
    assert json.loads(dumps(agent)) == {
        "id": "id-a",
        "name": "a",
        "labels": {"zone": "a"},
        "version": "0.1.0",
        "state": "ready",
        "slots": {"total": 4, "busy": 1},
        "model": {
            "name": "demo",
            "architecture": "llama",
            "parameters": 1_200_000,
            "size_bytes": 8_000_000,
            "context_size": 1024,
            "tasks": ["generate"],
            "longest_token": 0,
            "kernels": None,
            "kv_layout": None,
            "fingerprint": None,
            "upstream": None,
            "draft_model": None,
            "adapters": [],
            "chats": True,
            "deterministic": False,
            "engine": None,
            "quantization": "",
            "fit": None,
            "memory": [],
        },
        "models": [],
        "issues": [
            {"code": "slow_disk", "message": "reading takes long", "hint": "", "adapter": None}
        ],
        "download": None,
        "work": None,
        "facts": {
            "memory": 0,
            "devices": [],
            "cores": 0,
            "disk_free": None,
            "platform": "",
            "is_pinned": False,
            "answers_fit": False,
        },
        "devices": [],
        "throughput": {"tokens_total": 40, "tokens_per_second": 12.35},
        "statistics": None,
        "connected_seconds": 10.0,
    }


def test_an_agent_that_fetches_a_model_says_how_far_it_is() -> None:
    download = Download(file="m.gguf", bytes=5, total=10)
    assignment = Assignment(name="m", source="https://host/m.gguf")
    work = Work(
        revision=1, assignment=assignment, phase="fetching", progress=0.5, download=download
    )
    body = agent_json(replace(agent_view("a", model=None), work=work), None)
    assert body["download"] == download
    assert body["work"] == {
        "model": "m",
        "phase": "fetching",
        "progress": 0.5,
        "memory_needed": None,
    }
    unloading = replace(work, assignment=None)
    assert agent_json(replace(agent_view("a"), work=unloading), None)["work"] is None


def test_what_is_not_known_is_null() -> None:
    body = agent_json(agent_view("a", model=None), None)
    assert body["model"] is None
    assert body["state"] == "idle"
    assert body["throughput"]["tokens_per_second"] is None


def test_what_an_engine_did() -> None:
    said = Statistics(
        num_running=2,
        num_waiting=1,
        cells=Cells(total=100, used=30, kept=20),
        num_preemptions=3,
        cached_tokens=40,
        computed_tokens=60,
        completion_tokens=70,
        drafted_tokens=9,
        accepted_tokens=6,
        decode_tokens_per_second=12.3456,
        tokens_per_second=10.0,
        average_running=1.5,
        busy_seconds=7.00049,
        stalls=Histogram(bounds=(0.1,), counts=(4, 1), seconds=2.00049),
    )
    assert agent_json(agent_view("a", statistics=said), 1.0)["statistics"] == {
        "decode_tokens_per_second": 12.35,
        "prefill_tokens_per_second": None,
        "throughput_tokens_per_second": 10.0,
        "average_sequences": 1.5,
        "sequences": {"running": 2, "waiting": 1},
        "cells": {"total": 100, "used": 30, "kept": 20, "parked": 0},
        "disk_cache": None,
        "cached_tokens_total": 40,
        "computed_tokens_total": 60,
        "completion_tokens_total": 70,
        "drafted_tokens_total": 9,
        "accepted_tokens_total": 6,
        "preemptions_total": 3,
        "stalls_total": 5,
        "stall_seconds_total": 2.0,
        "busy_seconds_total": 7.0,
    }


def test_a_request() -> None:
    assert request_json(request_view("r1"), 3) == {
        "id": "r1",
        "state": "streaming",
        "model": None,
        "agent": "id-a",
        "waited_seconds": 0.25,
        "age_seconds": 1.5,
        "num_tokens": 7,
        "priority": 0,
        "priority_class": "default",
        "caller": "alice",
        "moves": 0,
        "position": 3,
        "balancer": None,
    }


def test_what_a_request_can_expect() -> None:
    known = request_json(request_view("r1"), None)
    nothing = {"position": None, "for": None, "seconds_left": None, "expected_start": None}
    assert listed_json(request_view("r1"), None, 1e9) == known | nothing
    told = listed_json(request_view("r1"), Waiting(3, "slot", 7.0), 1e9)
    assert told == known | {
        "position": 3,
        "for": "slot",
        "seconds_left": 7.0,
        "expected_start": 1e9 + 7,
    }
    unknown = listed_json(request_view("r1"), Waiting(1, "model"), 1e9)
    assert unknown == known | nothing | {"position": 1, "for": "model"}


def test_a_snapshot() -> None:
    view = fleet_view(agent_view("a"), requests=(request_view("r"),), queue_depth=3)
    body = snapshot_json(replace(view, moves_total=5), RATES, 1.23456, {RequestId("r"): 2}.get)
    assert body["at"] == 1.235
    assert body["num_requests"] == 1
    assert body["clocks"]["requests"] == ["age_seconds"], "one that has a slot waits no more"
    assert "connected_seconds" in body["clocks"]["agents"]
    assert body["moves_total"] == 5
    assert body["requests"] == [request_json(request_view("r"), 2)]
    assert body["agents"] == [agent_json(agent_view("a"), 12.3456)]
    assert body["queue"] == {"depth": 3, "limit": 256, "by_class": {}}
    assert body["slots"] == {"total": 4, "busy": 0}


def test_a_point_of_the_plots() -> None:
    assert throughput_json(fleet_view(agent_view("a", busy=2), queue_depth=1), RATES) == {
        "seconds": 1.0,
        "tokens_per_second": 12.35,
        "agents": {"id-a": 12.35},
        "queue_depth": 1,
        "slots_busy": 2,
    }


def test_text_stays_on_one_line() -> None:
    body = agent_json(agent_view("a\nb\r\u2028"), 1.0)
    assert b"\n" not in dumps(body)
    assert b"\r" not in dumps(body)
    assert json.loads(dumps(body))["name"] == body["name"]


def test_devices_of_an_agent_as_it_found_them_and_as_its_engine_measured_them() -> None:
    facts = HostFacts(memory=64, devices=(Device(name="CUDA0", memory=24),))
    measured = Statistics(
        devices=(
            DeviceMemory(name="CPU", kind="cpu", total=60, free=50, use=0.25, temperature=61.5),
            DeviceMemory(name="CUDA0", kind="gpu", total=24, free=4, others=3),
        )
    )
    idle = agent_json(replace(agent_view("a"), facts=facts), None)
    unknown = {"use": None, "temperature": None}
    unmeasured = {"free": None, "used": None, "others": None}
    assert idle["devices"] == [
        {"name": "CPU", "kind": "cpu", "memory": {"total": 64} | unmeasured, "models": []}
        | unknown,
        {"name": "CUDA0", "kind": "gpu", "memory": {"total": 24} | unmeasured, "models": []}
        | unknown,
    ]

    def served(name: str, **parts: int) -> ServedView:
        memory = tuple(MemoryPart(device=on, bytes=size) for on, size in parts.items())
        info = replace(MODEL, name=name, memory=memory)
        return ServedView(name=name, state="ready", slots=SlotsView(total=1, busy=0), info=info)

    both = replace(agent_view("a"), facts=facts, models=(served("m", CUDA0=4), served("n", CPU=9)))
    both = replace(both, models=(*both.models, served("o", CUDA0=5, CPU=1)))
    [cpu, cuda] = agent_json(both, None)["devices"]
    assert cpu["models"] == [{"name": "n", "bytes": 9}, {"name": "o", "bytes": 1}]
    assert cuda["models"] == [{"name": "m", "bytes": 4}, {"name": "o", "bytes": 5}]
    busy = agent_json(replace(agent_view("a"), facts=facts, statistics=measured), None)
    assert busy["devices"] == [
        {
            "name": "CPU",
            "kind": "cpu",
            "memory": {"total": 60, "free": 50, "used": 10, "others": None},
            "models": [],
            "use": 0.25,
            "temperature": 61.5,
        },
        {
            "name": "CUDA0",
            "kind": "gpu",
            "memory": {"total": 24, "free": 4, "used": 20, "others": 3},
            "models": [],
            **unknown,
        },
    ]
