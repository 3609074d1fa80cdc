"""The fleet as JSON: the one place that names the fields of the management API."""

import json
from dataclasses import asdict
from typing import Any

from ...shared.messages import ModelInfo, Statistics
from ..fleet.view import AgentView, FleetView, RequestView
from .throughput import Throughput

MAX_REQUESTS_SENT = 200
"""Most requests in one snapshot of the event stream, oldest first; REST lists them all."""

Json = dict[str, Any]


def agent_json(agent: AgentView, throughput: Throughput) -> Json:
    """One agent. `tokens_per_second` is null until it was measured, `download` until agents do,
    `statistics` until the engine told of itself.
    """
    rate = throughput.agents.get(agent.id)
    return {
        "id": agent.id,
        "name": agent.name,
        "labels": agent.labels,
        "version": agent.version,
        "state": agent.state,
        "slots": {"total": agent.slots.total, "busy": agent.slots.busy},
        "model": _model(agent.model) if agent.model else None,
        "issues": [{"code": issue.code, "message": issue.message} for issue in agent.issues],
        "download": None,
        "throughput": {
            "tokens_total": agent.num_tokens,
            "tokens_per_second": _rounded(rate),
        },
        "statistics": statistics_json(agent.statistics) if agent.statistics else None,
        "connected_seconds": round(agent.connected_seconds, 3),
    }


def statistics_json(said: Statistics) -> Json:
    """What an engine did since its model was loaded. A rate is null where there was no such step.

    Cells that are neither `used` by running sequences nor `kept` as prefixes are free.
    """
    return {
        "decode_tokens_per_second": _rounded(said.decode_tokens_per_second),
        "prefill_tokens_per_second": _rounded(said.prefill_tokens_per_second),
        "throughput_tokens_per_second": _rounded(said.tokens_per_second),
        "average_sequences": _rounded(said.average_running),
        "sequences": {"running": said.num_running, "waiting": said.num_waiting},
        "cells": {
            "total": said.cells.total,
            "used": said.cells.used,
            "kept": said.cells.kept,
            "parked": said.cells.parked,
        },
        "cached_tokens_total": said.cached_tokens,
        "computed_tokens_total": said.computed_tokens,
        "completion_tokens_total": said.completion_tokens,
        "drafted_tokens_total": said.drafted_tokens,
        "accepted_tokens_total": said.accepted_tokens,
        "preemptions_total": said.num_preemptions,
        "stalls_total": sum(said.stalls.counts),
        "stall_seconds_total": round(said.stalls.seconds, 3),
        "busy_seconds_total": round(said.busy_seconds, 3),
    }


def request_json(request: RequestView) -> Json:
    """One request that has not ended; `agent` is the id of the one it runs on."""
    return {
        "id": request.id,
        "state": request.state,
        "model": request.model,
        "agent": request.agent,
        "waited_seconds": round(request.waited_seconds, 3),
        "age_seconds": round(request.age_seconds, 3),
        "num_tokens": request.num_tokens,
        "priority": request.priority,
    }


def fleet_json(view: FleetView, throughput: Throughput) -> Json:
    """The event `fleet`: everything a page needs to draw, of bounded length in its requests."""
    return {
        "is_draining": view.is_draining,
        "queue": {"depth": view.queue_depth, "limit": view.queue_limit},
        "slots": {"total": view.slots_total, "busy": view.slots_busy},
        "tokens_total": view.tokens_total,
        "agents": [agent_json(agent, throughput) for agent in view.agents],
        "num_requests": len(view.requests),
        "requests": [request_json(request) for request in view.requests[:MAX_REQUESTS_SENT]],
    }


def throughput_json(view: FleetView, throughput: Throughput) -> Json:
    """The event `throughput`: one point for each plot."""
    return {
        "seconds": round(throughput.seconds, 3),
        "tokens_per_second": round(throughput.total, 2),
        "agents": {agent: round(rate, 2) for agent, rate in throughput.agents.items()},
        "queue_depth": view.queue_depth,
        "slots_busy": view.slots_busy,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)


def dumps(body: Json) -> str:
    """Compact JSON on one line."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _model(model: ModelInfo) -> dict[str, object]:
    return asdict(model) | {"tasks": list(model.tasks)}
