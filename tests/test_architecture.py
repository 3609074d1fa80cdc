"""The rules of the house, read from the source: what may import what, and where tests are."""

import ast
import importlib
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("shared", "agent", "balancer", "dashboard", "client", "cli")

PURE = (
    "balancer.fleet.bad_messages",
    "balancer.fleet.requests.claims",
    "shared.inference.abilities",
    "shared.inference.prefix_chain",
    "balancer.fleet.requests.dispatch.needs",
    *(
        f"agent.upstream.protocol.{name}"
        for name in (
            *("abilities", "address", "answer", "bodies", "dialects", "event_lines", "failures"),
            *("listing", "log_probs", "probes", "queries", "continuing", "continuation_probes"),
        )
    ),
    "agent.upstream.health",
    "agent.upstream.meter",
    "agent.chat.grammar.argument_grammar",
    "shared.tracing.span",
    "shared.tracing.trace_context",
    "balancer.tracing.request_spans",
    "agent.chat.output.attribution",
    "agent.engine.llama.kernels.check_model",
    "agent.engine.sampling.breakers",
    "agent.chat.grammar.call_grammar",
    "agent.chat.families.call_syntax",
    "agent.chat.calls.gemma_calls",
    "agent.chat.calls.json_calls",
    "agent.chat.calls.literals",
    "agent.chat.calls.named_calls",
    "agent.chat.calls.python_calls",
    "agent.chat.calls.tagged_calls",
    "agent.chat.parsing.harmony",
    "agent.generation.sampling_resolver",
    "agent.chat.output.echo",
    "agent.chat.families.families",
    "agent.chat.families.family",
    "agent.chat.grammar.gbnf",
    "agent.chat.grammar.gbnf_terminals",
    "agent.chat.grammar.grammar",
    "agent.chat.grammar.lark",
    "agent.chat.templates.instructions",
    "agent.chat.templates.message_form",
    "agent.chat.templates.user_text",
    "agent.chat.families.notations",
    "agent.chat.parsing.marker_parser",
    "agent.chat.grammar.unenforced",
    "agent.chat.calls.reader",
    "agent.chat.output.reasoning_count",
    "agent.chat.families.recognition",
    "agent.chat.templates.sandbox",
    "agent.chat.grammar.schema",
    "agent.chat.calls.canonical",
    "agent.chat.calls.pattern",
    "agent.chat.calls.schema_check",
    "agent.chat.grammar.schema_place",
    "agent.chat.grammar.schema_alternatives",
    "agent.chat.grammar.work",
    "agent.chat.parsing.segmenter",
    "agent.chat.calls.segments",
    "agent.chat.output.stop_strings",
    "agent.chat.templates.chat_template",
    "agent.chat.calls.tools",
    "agent.chat.output.transcript",
    "agent.engine.scheduling.accounting",
    "agent.engine.sampling.filters",
    "agent.adapter_table",
    "agent.change_refusals",
    "agent.engine.adapter",
    "agent.engine.turns.adapter_turns",
    "agent.engine.turns.fair_order",
    "agent.engine.scheduling.background",
    "agent.engine.scheduling.exports",
    "agent.engine.scheduling.admission",
    "agent.engine.capacity",
    "agent.engine.kv_cache.allowance",
    "agent.engine.kv_cache.cells",
    "agent.engine.kv_cache.eviction",
    "agent.engine.kv_cache.kept_prefixes",
    "agent.engine.sampling.mt19937",
    "agent.engine.sampling.resumed_chance",
    "agent.engine.draft_model",
    "agent.engine.speculation.acceptance",
    "agent.engine.speculation.confidence",
    "agent.engine.speculation.draft_allowance",
    "agent.engine.speculation.draft_cache",
    "agent.engine.speculation.draft_worth",
    "agent.engine.speculation.joint_drafter",
    "agent.engine.speculation.drafter",
    "agent.engine.speculation.lookup_drafter",
    "agent.engine.embedding.chunk_size",
    "agent.chat.output.detokenizer",
    "agent.engine.embedding.embedding_plan",
    "agent.engine.cost.least_squares",
    "agent.engine.cost.linear_cost",
    "agent.engine.cost.move_cost",
    "agent.engine.sampling.log_probs",
    "agent.engine.kv_cache.memory",
    "agent.engine.kv_cache.stream_eviction",
    "agent.engine.kv_cache.stream_holders",
    "agent.engine.kv_cache.stream_memory",
    "agent.engine.kv_cache.streams",
    "agent.engine.kv_cache.unified_memory",
    "agent.engine.llama.cells.fixed_batches",
    "agent.engine.llama.cells.layout",
    "agent.engine.llama.cells.places",
    "agent.engine.media.audio",
    "agent.engine.media.images",
    "agent.engine.llama.cells.state_format",
    "agent.engine.sampling.mirostat",
    "agent.engine.scheduling.planner",
    "agent.engine.kv_cache.prefix_marks",
    "agent.engine.kv_cache.prefix_tree",
    "agent.engine.scheduling.progress",
    "agent.engine.scheduling.prefill_budget",
    "agent.engine.scheduling.recovery",
    "agent.engine.speculation.prompt_lookup",
    "agent.engine.scheduling.prompt_reading",
    "agent.engine.scheduling.refusal",
    "agent.engine.scheduling.runs",
    "agent.engine.sampling.dry",
    "agent.engine.scheduling.queue",
    "agent.engine.sampling.sampling",
    "agent.engine.scheduling.scheduler",
    "agent.engine.prompt",
    "agent.engine.sequence",
    "agent.engine.speculation.speculation",
    "agent.engine.statistics",
    "agent.engine.step",
    "agent.engine.turns.step_mode",
    "agent.engine.kv_cache.residency",
    "agent.engine.cost.step_cost",
    "agent.engine.prompt_store.stored_prompt",
    "agent.engine.prompt_store.writers",
    "agent.engine.scheduling.context_shift",
    "agent.generation.active_request",
    "agent.generation.active_requests",
    "agent.generation.answers.answer",
    "agent.generation.answers.delivered",
    "agent.generation.answers.held_pieces",
    "agent.generation.fingerprint",
    "agent.generation.answers.resumption",
    "agent.generation.answers.retelling",
    "agent.generation.port",
    "agent.generation.text_length",
    "agent.models.folder.eviction",
    "agent.models.fetch_protocol",
    "agent.models.gguf_header",
    "agent.models.model_file",
    "agent.models.memory_estimate",
    "agent.models.rate",
    "agent.models.retry_pauses",
    "agent.models.sources.quantisations",
    "agent.models.download.progress",
    "agent.models.download.redirects",
    "agent.models.download.response_facts",
    "agent.models.download.retries",
    "agent.models.sources.split_names",
    "agent.discovery.addresses",
    *("agent.peers.exchange", "agent.peers.resting", "agent.peers.tickets"),
    "agent.link.balancer_secrets",
    "agent.link.decisions",
    "agent.link.dialect",
    "agent.link.outgoing",
    "agent.link.reporter",
    "agent.link.queries",
    "agent.link.requests",
    "agent.link.session",
    "agent.link.slots",
    "agent.link.log_waits",
    "agent.generation.answers.utterance",
    "agent.supervision.assigner",
    "agent.supervision.attempt",
    "agent.supervision.engines",
    "agent.supervision.load_failures",
    "agent.supervision.restarts",
    "balancer.api.conversation_store",
    "balancer.api.anthropic.answer_types",
    "balancer.api.anthropic.event_types",
    "balancer.api.anthropic.operations",
    "balancer.api.anthropic.conversation",
    "balancer.api.anthropic.context_edits",
    "balancer.api.anthropic.errors",
    "balancer.api.anthropic.events",
    "balancer.api.anthropic.options",
    "balancer.api.anthropic.requests",
    "balancer.api.anthropic.threads",
    "balancer.api.common.answer_types",
    "balancer.api.common.accumulator",
    "balancer.api.common.log_probs",
    "balancer.api.common.field_names",
    "balancer.api.common.body_fields",
    "balancer.api.common.embeddings",
    "balancer.api.anthropic.fields",
    "balancer.api.fields.field_notes",
    "balancer.api.fields.field_table",
    "balancer.api.fields.shape",
    "balancer.api.openai.fields",
    "balancer.api.openai.responses.fields",
    "balancer.api.transport.once_per",
    "balancer.api.document",
    "balancer.api.native.answer_types",
    "balancer.api.native.operations",
    "balancer.api.native.events",
    "balancer.api.native.queries",
    "balancer.api.native.requests",
    "balancer.api.openai.answer_types",
    "balancer.api.openai.completions.answers",
    "balancer.api.openai.operations",
    "balancer.api.openai.queries.embeddings",
    "balancer.api.openai.errors",
    "balancer.api.openai.completions.extras",
    "balancer.api.openai.completions.formats",
    "balancer.api.openai.completions.log_probs",
    "balancer.api.openai.completions.reasoning",
    "balancer.api.openai.completions.requests",
    "balancer.api.openai.completions.running_usage",
    "balancer.api.openai.completions.shapes",
    "balancer.api.openai.responses.answer_types",
    "balancer.api.openai.responses.event_types",
    "balancer.api.openai.responses.operations",
    "balancer.api.openai.responses.events",
    "balancer.api.openai.responses.items",
    "balancer.api.openai.responses.listing",
    "balancer.api.openai.responses.requests",
    "balancer.api.openai.responses.stored",
    "balancer.api.openai.responses.tools",
    "balancer.api.openai.queries.rerank",
    *(f"balancer.api.openai.batches.{name}" for name in ("answer_types", "batch_object")),
    *(f"balancer.api.openai.batches.{name}" for name in ("operations", "pages", "requests")),
    "balancer.api.openai.batches.upload_form",
    *(f"balancer.jobs.core.{name}" for name in ("batch", "lines", "outcome", "progress")),
    "balancer.jobs.core.schedule",
    "balancer.jobs.file_limits",
    "balancer.store.jobs.records",
    *(f"balancer.api.ollama.{name}" for name in ("answer_types", "answers", "conversation")),
    *(f"balancer.api.ollama.{name}" for name in ("embeddings", "errors", "fields", "models")),
    *(f"balancer.api.ollama.{name}" for name in ("images", "operations", "options", "requests")),
    "balancer.api.absent",
    "balancer.api.vllm.operations",
    "balancer.api.vllm.tokens",
    "balancer.api.openapi.answers",
    "balancer.api.openapi.bodies",
    "balancer.api.openapi.document",
    "balancer.api.openapi.schemas",
    "balancer.api.common.parts",
    "balancer.api.common.readable",
    "balancer.api.native.rpc",
    *(f"balancer.api.links.{name}" for name in ("addresses", "places")),
    "balancer.api.transport.hosts",
    "shared.json_size",
    "balancer.api.transport.waiting",
    "balancer.api.transport.web_socket_bytes",
    *(f"balancer.control.{name}" for name in ("controller", "demand", "departures", "failures")),
    *(f"balancer.control.{name}" for name in ("members", "memory_needs", "model_status")),
    *(f"balancer.control.{name}" for name in ("agent_plan", "placement", "rollout")),
    "balancer.tls.expiry",
    "balancer.tls.exposure",
    *(f"balancer.access.limits.{name}" for name in ("account", "limiter", "parse", "rules")),
    *(f"balancer.access.limits.{name}" for name in ("sliding_window", "token_estimate")),
    *(f"balancer.access.{name}" for name in ("identity", "access_key", "keyring", "key_spec")),
    "balancer.access.saved_keys",
    "balancer.access.sessions",
    *(f"balancer.api.access.{name}" for name in ("credentials", "permissions")),
    "balancer.control.desired_state",
    "balancer.control.order_numbers",
    "balancer.control.state_document",
    "balancer.store.news.records",
    *("balancer.peers.standing", "balancer.peers.waiting"),
    *(f"balancer.fleet.models.{name}" for name in ("known_model", "model_registry")),
    "balancer.fleet.models.prompt_room",
    *("balancer.peers.pieces", "balancer.peers.questions"),
    *(f"balancer.workers.{name}" for name in ("crew", "hub", "messages")),
    "agent.discovery.worker_links",
    *("balancer.management.elsewhere.told", "balancer.management.elsewhere.elsewhere"),
    "balancer.management.elsewhere.worker_metrics",
    "balancer.fleet.caller",
    "balancer.fleet.change_log",
    "balancer.fleet.deadlines",
    "balancer.fleet.queries.query",
    "balancer.fleet.decisions",
    "balancer.fleet.queries.query_dispatcher",
    "balancer.fleet.requests.delivered",
    *(f"balancer.fleet.requests.dispatch.{name}" for name in ("assignments", "dispatch")),
    *(f"balancer.fleet.requests.dispatch.{name}" for name in ("holds", "ranks", "slots")),
    "balancer.fleet.requests.live_requests",
    "balancer.fleet.requests.moves",
    "balancer.fleet.requests.notices",
    "balancer.fleet.requests.request_lifecycle",
    "balancer.fleet.requests.routing",
    "balancer.fleet.core.admission",
    "balancer.fleet.core.agent_output",
    "balancer.fleet.core.fleet",
    "balancer.fleet.core.fleet_views",
    *("balancer.fleet.core.fleet_clock", "balancer.fleet.core.operations"),
    "balancer.fleet.core.cordons",
    "balancer.fleet.core.left_out",
    "balancer.fleet.core.load_times",
    "balancer.fleet.core.log_readers",
    "balancer.fleet.core.membership",
    "balancer.fleet.core.state",
    "balancer.fleet.core.steering",
    "balancer.fleet.queries.query_queue",
    "balancer.fleet.lifecycle",
    "balancer.fleet.limits",
    "balancer.fleet.older_issues",
    "balancer.fleet.requests.matching",
    "balancer.fleet.priority_queue",
    "balancer.fleet.runtime.outgoing",
    "balancer.fleet.recorder",
    "balancer.fleet.requests.requests",
    *(f"balancer.fleet.requests.{name}" for name in ("hopeless", "transitions")),
    *(f"balancer.fleet.requests.{name}" for name in ("giving_way", "slot_times")),
    *(f"balancer.fleet.requests.{name}" for name in ("giving_way", "slot_times")),
    *(f"balancer.fleet.requests.fair_queue.{name}" for name in ("charge", "crowding")),
    *(f"balancer.fleet.requests.fair_queue.{name}" for name in ("fair_order", "fair_queue")),
    *(f"balancer.fleet.requests.fair_queue.{name}" for name in ("foreground", "turns")),
    *(f"balancer.fleet.requests.{name}" for name in ("waiting_news", "waiting_room")),
    "balancer.fleet.registry",
    "balancer.fleet.identities",
    "balancer.fleet.trust",
    *(f"balancer.fleet.routing.{name}" for name in ("beliefs", "cache_keys", "choice", "cost")),
    *(f"balancer.fleet.routing.{name}" for name in ("fetches", "rates", "router")),
    "balancer.fleet.tally",
    "balancer.fleet.view",
    "balancer.management.history.history_query",
    "balancer.management.history.usage_query",
    "balancer.history.chart",
    "balancer.history.documents",
    "balancer.history.endings",
    "balancer.history.latencies",
    "balancer.history.other_steps",
    "balancer.history.recorder",
    "balancer.history.series",
    "balancer.history.sums",
    "balancer.history.usage",
    "balancer.store.health",
    "balancer.store.pending",
    "balancer.fleet.kept_record",
    "balancer.conversations.pending",
    "balancer.kept.documents",
    "balancer.kept.journal",
    "balancer.store.records",
    "balancer.store.url",
    "balancer.management.answer_types",
    "balancer.management.event_history",
    "balancer.management.fleet_feed",
    "balancer.management.operations",
    *("balancer.management.jobs.answer_types", "balancer.management.jobs.operations"),
    *(f"balancer.management.keys.{name}" for name in ("operations", "serializers")),
    *("balancer.management.session.answer_types", "balancer.management.session.operations"),
    "balancer.management.request_filter",
    "balancer.management.serializers",
    "balancer.management.throughput",
    "cli.batch_lines",
    "cli.checks",
    "cli.completions",
    "cli.fleet_state",
    "cli.output",
    "cli.plan",
    "cli.plot",
    "client.answers",
    "client.errors",
    "client.retries",
    "client.sse",
    "shared.continuation",
    "shared.models.assignments",
    "shared.errors",
    "shared.framing.frames",
    *(f"shared.inference.{name}" for name in ("conversation", "events", "grammars")),
    *("shared.inference.priority", "shared.inference.request", "shared.inference.values"),
    "shared.inference.prefix_peers",
    "shared.messages",
    "shared.models.sources",
    "shared.framing.heartbeat",
    "shared.quantities",
    "shared.reports.model_info",
    "shared.reports.statistics",
    "shared.sampling",
    "shared.queries",
    "shared.strict",
    "shared.template_variables",
    "shared.tls.certificate_dates",
    "shared.validation",
)
"""Modules that only compute, however far their imports are followed within the house."""

DECLARATIONS = {
    "balancer.api.openai.batches.answer_types": "types; the OpenAPI document is made of them",
    "balancer.jobs.blobs.port": "protocols, and an error; both that implement them are tested",
    "balancer.jobs.file_limits": "a record of numbers",
    "balancer.management.jobs.answer_types": "types; the OpenAPI document is made of them",
    "balancer.jobs.tools": "a record of what batches use",
    "balancer.store.jobs.records": "records that the contract's tests compare",
    "balancer.management.history.answer_types": "types; the OpenAPI document is made of them",
    "balancer.management.keys.answer_types": "types; the OpenAPI document is made of them",
    "balancer.management.session.answer_types": "a type; the OpenAPI document is made of it",
    "balancer.management.session.bodies": "a record of fields; the routes' tests send it",
    "balancer.management.keys.bodies": "records of fields; the routes' tests send them",
    "client.requests": "a record of fields",
    "balancer.store.migrations.env": "the lines that Alembic runs",
    "balancer.store.kept.records": "records and a protocol",
    "balancer.store.conversations.records": "records and a protocol",
    "balancer.store.peers.port": "records and protocols; both that implement them are tested",
    "balancer.store.tables": "tables; a test of the migrations compares them",
    "agent.models.download.remote_file": "a record of what to download",
    "agent.models.sources.located": "a record of where a model's files are",
    "agent.engine.capacity": "a record of numbers",
    "agent.engine.embedding.embedding": "protocols; who implements and who uses them is tested",
    "agent.engine.kv_cache.memory": "a protocol; both layouts that implement it are tested",
    "agent.engine.media.reader": "a protocol and its error; the projector's tests raise it",
    "agent.engine.loaded_model": "protocols, and records of what a model is",
    "agent.engine.model_error": "an exception",
    "agent.engine.sequence": "records that go into the engine and come out of it",
    "agent.engine_port": "protocols; the daemon's tests implement them",
    "agent.generation.answers.prepared": "records between preparation and answer",
    "agent.link.decisions": "records that a session's tests compare",
    "agent.supervision.decisions": "records that the assigner's tests compare",
    "balancer.fleet.decisions": "records that the fleet's tests compare",
    "balancer.management.steering.bodies": "records of fields; the routes' tests send them",
    "balancer.management.steering.answer_types": "answers; the routes' tests compare them",
    "balancer.fleet.kept_record": "records and a protocol",
    "balancer.fleet.recorder": "a record and a protocol",
    "shared.inference.grammars": "records of fields; the requests' tests send them",
    "shared.reports.log_lines": "records; the tests of the messages send them",
    "shared.tracing.span": "records",
    "balancer.api.transport.pushing.text_frame": "a record",
    "balancer.fleet.runtime.peer": "a record and a protocol",
    "balancer.fleet.view": "records that the core's tests compare",
}
"""Modules that hold only declarations, and so need no test module; with what they declare."""

IMPURE = {
    *("asyncio", "aiohttp", "websockets", "llama_cpp"),
    *("time", "random", "logging", "socket", "threading"),
}

SPARED = {
    "agent.supervision.supervisor": {"numpy", "llguidance", "llama_cpp", "jinja2", "aiohttp"},
    "agent.upstream_daemon": {"numpy", "llguidance", "llama_cpp", "jinja2", "gguf"},
    "balancer.daemon": {"numpy", "llguidance", "llama_cpp", "jinja2", "websockets"},
}
"""Libraries that a process does without: each takes up to 0.2 s of every start."""

VOCABULARY = {
    "agent.engine": (
        "agent.engine.sampling",
        "agent.engine.grammar",
        "agent.engine.prompt",
        "agent.engine.prompt_store",
        "agent.engine.embedding",
        "agent.engine.media",
        "agent.engine.statistics",
    ),
    "balancer.fleet": ("balancer.access.identity",),
}
"""Rooms whose own files are words that the rooms below them share, and what those words need."""

ENGINE = ("agent.engine", *VOCABULARY["agent.engine"])
LIMITS = ("balancer.access.identity", "balancer.access.limits")
FAIR_QUEUE = "balancer.fleet.requests.fair_queue"
DISPATCH = "balancer.fleet.requests.dispatch"
REQUEST_WORDS = ("balancer.fleet.requests.matching", "balancer.fleet.requests.routing")
REQUESTS = ("balancer.fleet.requests", DISPATCH, *REQUEST_WORDS)
FLEET = ("balancer.fleet", *REQUESTS, "balancer.fleet.queries")
FOR_CLIENTS = (
    *("balancer.api.fields", "balancer.api.conversation_store"),
    "balancer.api.conversations",
)
API = (
    *("balancer.api.common", "balancer.api.transport", "balancer.api.transport.pushing"),
    "balancer.api.openapi",
)
OPENAI = ("balancer.api.openai.completions", "balancer.api.openai.queries")
APIS = (
    *("balancer.api.native", "balancer.api.anthropic"),
    *("balancer.api.openai", *OPENAI, "balancer.api.openai.operations"),
    *("balancer.api.openai.responses", "balancer.api.openai.batches", "balancer.api.vllm"),
    "balancer.api.ollama",
)
JOBS = (
    *("balancer.jobs", "balancer.jobs.core", "balancer.jobs.blobs", "balancer.jobs.file_limits"),
    *("balancer.store", "balancer.store.jobs"),
)
RUNTIME = ("balancer.fleet", "balancer.fleet.queries", "balancer.fleet.runtime")
MANAGEMENT_WORDS = (
    *("balancer.management.answer_types", "balancer.management.throughput"),
    *("balancer.management.serializers", "balancer.management.request_filter"),
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "shared": (),
    "dashboard": (),
    "client": (),
    "cli": ("client",),
    "cli.commands": ("cli", "client"),
    "cli.commands.keys": ("cli", "client", "balancer.access", "balancer.management.keys"),
    # ---- the engine, from the bottom up
    "agent.engine.sampling": (),
    "agent.engine.grammar": ("agent.engine.sampling",),
    "agent.engine.prompt": (),
    "agent.engine.prompt_store": ("agent.engine.prompt",),
    "agent.engine.embedding": (),
    "agent.engine.media": ("agent.engine.prompt",),
    **VOCABULARY,
    "agent.engine.sampling.breakers": ENGINE,
    "agent.engine.sampling.sampler": ENGINE,
    "agent.engine.embedding.embedder": ENGINE,
    "agent.engine.cost": (),
    "agent.engine.kv_cache": ENGINE,
    "agent.engine.speculation": (*ENGINE, "agent.engine.cost"),
    "agent.engine.turns": ENGINE,
    "agent.engine.scheduling": (
        *ENGINE,
        "agent.engine.cost",
        "agent.engine.kv_cache",
        "agent.engine.speculation",
        "agent.engine.turns",
    ),
    "agent.engine.llama.kernels": (),
    "agent.engine.llama.cells": ENGINE,
    "agent.engine.llama.log": (),
    "agent.engine.llama.model_file": ENGINE,
    "agent.engine.llama.adapters": (*ENGINE, "agent.engine.llama.log"),
    "agent.engine.llama.media": (
        *(*ENGINE, "agent.engine.llama.log", "agent.engine.llama.model_file"),
    ),
    "agent.engine.llama": (
        *(*ENGINE, "agent.engine.sampling.sampler"),
        *("agent.engine.llama.kernels", "agent.engine.llama.cells"),
        *("agent.engine.llama.adapters",),
        *("agent.engine.llama.media", "agent.engine.llama.log", "agent.engine.llama.model_file"),
    ),
    "agent.engine.step_loop": (
        *(*ENGINE, "agent.engine.scheduling", "agent.engine.speculation"),
        "agent.engine.turns",
    ),
    "agent.engine.worker": (
        *(*ENGINE, "agent.engine.step_loop"),
        "agent.engine.scheduling",
        "agent.engine.speculation",
        "agent.engine.turns",
        "agent.engine.llama",
    ),
    # ---- what a model speaks
    "agent.chat.templates": ENGINE,
    "agent.chat.calls": (),
    "agent.chat.families": ("agent.chat.calls",),
    "agent.chat.families.records": ("agent.chat.calls", "agent.chat.families"),
    "agent.chat.parsing": ("agent.chat.calls", "agent.chat.families"),
    "agent.chat.grammar": (
        "agent.chat.calls",
        "agent.chat.families",
        "agent.chat.parsing",
        "agent.engine.grammar",
    ),
    "agent.chat.output": ("agent.engine.sampling",),
    # ---- an agent
    "agent.generation.port": (),
    "agent.generation.answers": ("agent.chat", *ENGINE),
    "agent.generation": (
        *("agent.generation.port", "agent.generation.answers", "agent.chat", *ENGINE),
        *("agent.engine.sampling.breakers", "agent.adapter_table"),
        "agent.engine.embedding.embedder",
    ),
    "agent.engine.statistics": (),
    "agent.link.balancer_secrets": (),
    "agent.link": (
        *("agent.generation.port", "agent.engine.statistics", "agent.link.balancer_secrets"),
    ),
    "agent.discovery": ("agent.link",),
    "agent.upstream.protocol": (),
    "agent.upstream": (
        *("agent.upstream.protocol", "agent.generation.port", "agent.engine.statistics"),
    ),
    "agent.balancer_links": (
        *("agent.settings", "agent.supervision.supervisor_protocol", "agent.link"),
        *("agent.generation.port", "agent.discovery"),
    ),
    "agent.upstream_daemon": (
        *("agent.settings", "agent.supervision.supervisor_protocol", "agent.balancer_links"),
        *("agent.link", "agent.upstream", "agent.upstream.protocol"),
        "agent.change_refusals",
    ),
    "agent.cpu_cores": (),
    "agent.host_facts": ("agent.cpu_cores",),
    "agent.gpus": (),
    "agent.settings": ("agent.cpu_cores", "agent.chat.families", "agent.adapter_table"),
    "agent.supervision.supervisor_protocol": ("agent.settings", "agent.link.balancer_secrets"),
    "agent.peers": ENGINE,
    "agent.engine_port": ENGINE,
    "agent.adapter_table": ENGINE,
    "agent.change_refusals": (),
    "agent.served_model": (
        "agent.adapter_table",
        *("agent.settings", "agent.generation", "agent.chat.templates", *ENGINE),
        "agent.models.sources.split_names",
    ),
    "agent.daemon": (
        *("agent.settings", "agent.supervision.supervisor_protocol", "agent.link"),
        *("agent.balancer_links", "agent.generation", *ENGINE),
        *("agent.engine.embedding.embedder", "agent.engine.worker"),
        *("agent.engine_port", "agent.served_model", "agent.adapter_table"),
        *("agent.change_refusals", "agent.peers"),
    ),
    "agent.models.port": (),
    "agent.models.retry_pauses": (),
    "agent.models.folder": ("agent.models.port",),
    "agent.models.download": (
        *("agent.models.folder", "agent.models.port", "agent.models.retry_pauses"),
    ),
    "agent.models.sources.split_names": (),
    "agent.models.sources": (
        "agent.models.sources.split_names",
        *("agent.models.download", "agent.models.folder", "agent.models.port"),
    ),
    "agent.models": (
        *("agent.models.port", "agent.models.folder", "agent.models.download"),
        "agent.models.sources",
    ),
    "agent.supervision": (
        *("agent.models", "agent.models.port", "agent.models.retry_pauses", "agent.host_facts"),
        *("agent.settings", "agent.supervision.supervisor_protocol", "agent.daemon"),
        "agent.upstream_daemon",
        *(
            "agent.link",
            "agent.link.balancer_secrets",
            "agent.discovery",
            "agent.generation.port",
            "agent.engine.llama",
        ),
        *("agent.engine", "agent.engine.llama.cells"),
    ),
    "agent.__main__": (
        *("agent.settings", "agent.host_facts", "agent.gpus", "agent.models"),
        "agent.supervision",
    ),
    # ---- a balancer
    "balancer.access.identity": (),
    "balancer.access.limits": ("balancer.access.identity", "balancer.fleet"),
    "balancer.tls": (),
    "balancer.access": (*("balancer.access.identity", "balancer.store", "balancer.store.records"),),
    "balancer.control": (),
    "balancer.fleet.routing": ("balancer.fleet",),
    "balancer.fleet.models": ("balancer.fleet",),
    "balancer.fleet.requests.fair_queue.charge": (),
    "balancer.fleet.requests.routing": (
        *("balancer.fleet", "balancer.fleet.routing", f"{FAIR_QUEUE}.charge"),
    ),
    "balancer.fleet.requests.matching": ("balancer.fleet", "balancer.fleet.requests.routing"),
    "balancer.fleet.requests.fair_queue": ("balancer.fleet", *REQUEST_WORDS),
    "balancer.fleet.requests.dispatch": (
        *("balancer.fleet", "balancer.fleet.routing", *REQUEST_WORDS, FAIR_QUEUE),
    ),
    "balancer.fleet.requests": (
        *("balancer.fleet", "balancer.fleet.routing", *REQUEST_WORDS),
        *(DISPATCH, FAIR_QUEUE, f"{FAIR_QUEUE}.charge"),
    ),
    "balancer.fleet.queries": ("balancer.fleet", *REQUESTS),
    "balancer.fleet.core": (
        *(*FLEET, "balancer.fleet.models", *LIMITS, "balancer.access.identity"),
        "balancer.control",
    ),
    "balancer.fleet.runtime": (
        *(*FLEET, *LIMITS, "balancer.fleet.core", "balancer.control"),
        "balancer.access.identity",
    ),
    "balancer.api.transport.pushing": (),
    "balancer.api.transport": (
        *("balancer.api.transport.pushing", "balancer.fleet", "balancer.tls"),
        "balancer.access.identity",
    ),
    "balancer.api.access": (
        *("balancer.api.transport", "balancer.access", "balancer.access.identity"),
    ),
    "balancer.api.links": ("balancer.api.transport",),
    "balancer.api.openapi": (),
    "balancer.api.common": (
        *(*RUNTIME, "balancer.api.transport", "balancer.api.transport.pushing"),
        "balancer.api.openapi",
    ),
    "balancer.api.conversation_store": (),
    "balancer.api.conversations": ("balancer.api.conversation_store",),
    "balancer.api.fields": ("balancer.api.common", "balancer.api.transport"),
    "balancer.api.native": (*API, *RUNTIME, "balancer.api.access", "balancer.access.identity"),
    "balancer.api.anthropic.conversation": (),
    "balancer.api.anthropic": (
        *("balancer.api.anthropic.conversation", *API, *RUNTIME, *FOR_CLIENTS),
    ),
    "balancer.api.openai": (*API, "balancer.api.fields"),
    "balancer.api.openai.completions": (*API, *RUNTIME, "balancer.api.openai", *FOR_CLIENTS[:1]),
    "balancer.api.openai.queries": (*API, *RUNTIME, "balancer.api.openai", *FOR_CLIENTS[:1]),
    "balancer.api.openai.operations": (
        *(*API, *OPENAI, "balancer.api.openai", "balancer.api.anthropic"),
    ),
    "balancer.api.openai.responses": (
        *(*API, *RUNTIME, "balancer.api.openai", "balancer.api.openai.completions"),
        *("balancer.api.openai.operations", *FOR_CLIENTS),
    ),
    "balancer.api.openai.batches": (
        *(*API, *RUNTIME, *OPENAI, "balancer.api.openai", "balancer.api.openai.responses"),
        *("balancer.api.openai.operations", "balancer.api.conversations", *JOBS),
    ),
    "balancer.api.vllm": (*API, *RUNTIME, "balancer.api.fields", "balancer.api.openai.operations"),
    "balancer.api.ollama": (
        *(*API, *RUNTIME, "balancer.api.fields", "balancer.api.openai.completions"),
    ),
    "balancer.api.absent": (),
    "balancer.api.app": (
        *(*API, *APIS, *RUNTIME, *FOR_CLIENTS),
        *("balancer.api.document", "balancer.api.limit_headers", "balancer.api.absent"),
        *("balancer.access", "balancer.api.access", "balancer.jobs"),
    ),
    "balancer.api.limit_headers": (*RUNTIME, *LIMITS, "balancer.api.transport"),
    "balancer.api.document": (*API, *APIS, "balancer.api.fields"),
    "balancer.management.history": (
        *("balancer.history", "balancer.store.records", "balancer.store"),
        "balancer.management.elsewhere",
    ),
    "balancer.management.steering": (
        *(
            *API,
            *RUNTIME,
            "balancer.api.native",
            "balancer.control",
            "balancer.store",
            "balancer.store.records",
        ),
    ),
    "balancer.management.keys": (
        *(*API, "balancer.api.native", "balancer.access", "balancer.access.identity"),
    ),
    "balancer.management.jobs": (*API, "balancer.api.native", *JOBS),
    "balancer.management.session": (
        *(*API, "balancer.api.native", "balancer.access", "balancer.access.identity"),
        "balancer.api.access",
    ),
    "balancer.management.answer_types": ("balancer.fleet",),
    "balancer.management.throughput": ("balancer.fleet",),
    "balancer.management.serializers": ("balancer.fleet", *MANAGEMENT_WORDS[:2]),
    "balancer.management.request_filter": ("balancer.fleet",),
    "balancer.management.elsewhere": (
        *(*RUNTIME, *MANAGEMENT_WORDS, "balancer.peers"),
        *("balancer.history", "balancer.store.records"),
    ),
    "balancer.management": (
        *("balancer.management.session", "balancer.management.elsewhere", *MANAGEMENT_WORDS),
        *("balancer.management.history", "balancer.access", "balancer.api.access"),
        *("balancer.management.keys", "balancer.store"),
        *(*API, *RUNTIME, "balancer.api.native", "balancer.history", "balancer.store.records"),
        *("balancer.management.steering", "balancer.jobs", "balancer.management.jobs"),
    ),
    "balancer.store.records": (),
    "balancer.store.news": (),
    "balancer.store.peers": (*("balancer.store", "balancer.store.news", "balancer.store.records"),),
    "balancer.peers": ("balancer.store", "balancer.store.news", "balancer.store.peers"),
    "balancer.peering": (
        *("balancer.peers", "balancer.persistence", "balancer.fleet.runtime"),
        *("balancer.management.steering", "balancer.access", "balancer.management"),
        *("balancer.management.answer_types", "balancer.management.elsewhere"),
        *("balancer.management.session", "balancer.store.news", "balancer.store.peers"),
        "balancer.conversations",
    ),
    "balancer.store.tables": (),
    "balancer.store.kept": (
        *("balancer.store.records", "balancer.store.tables", "balancer.store.news"),
    ),
    "balancer.store": (
        *("balancer.store.records", "balancer.store.tables", "balancer.store.kept"),
        *("balancer.store.news", "balancer.store.history", "balancer.store.conversations"),
    ),
    "balancer.store.conversations": (
        *("balancer.store.records", "balancer.store.tables", "balancer.store.kept"),
    ),
    "balancer.store.history": ("balancer.store.records", "balancer.store.tables"),
    "balancer.store.jobs": (
        *("balancer.store", "balancer.store.records", "balancer.store.tables"),
    ),
    "balancer.kept": (
        *("balancer.fleet", "balancer.fleet.requests.routing", "balancer.fleet.runtime"),
        *("balancer.store", "balancer.store.kept", "balancer.store.records"),
    ),
    "balancer.conversations": (
        *("balancer.peers", "balancer.store", "balancer.store.conversations"),
        "balancer.store.records",
    ),
    "balancer.jobs.core": (),
    "balancer.jobs.inputs": ("balancer.jobs.core", "balancer.store.jobs"),
    "balancer.jobs.blobs": (),
    "balancer.jobs.file_limits": (),
    "balancer.jobs": (*JOBS[1:], "balancer.jobs.inputs", "balancer.fleet"),
    "balancer.batch_jobs": (
        *(*JOBS, *RUNTIME, "balancer.access", "balancer.api.openai.batches"),
        *("balancer.api.conversations", "balancer.api.transport"),
        *("balancer.persistence", "balancer.settings"),
    ),
    "balancer.shared_conversations": (
        *("balancer.api.anthropic", "balancer.api.openai.responses", *FOR_CLIENTS[1:]),
        *("balancer.conversations", "balancer.store.conversations"),
        *("balancer.persistence", "balancer.settings"),
    ),
    "balancer.history": (*("balancer.fleet", "balancer.store.records", "balancer.store"),),
    "balancer.settings": (
        *LIMITS,
        "balancer.store",
        "balancer.api.conversation_store",
        "balancer.fleet",
        "balancer.api.transport",
        "balancer.jobs.blobs",
        "balancer.jobs.file_limits",
    ),
    "balancer.persistence": (
        "balancer.store.jobs",
        *("balancer.fleet", "balancer.history", "balancer.store", "balancer.store.records"),
        "balancer.store.peers",
    ),
    "balancer.workers": (
        *("balancer.settings", "balancer.store", "balancer.store.news", "balancer.store.peers"),
    ),
    "balancer.ports": ("balancer.settings", "balancer.api.transport", "balancer.tls"),
    "balancer.tracing": ("balancer.fleet",),
    "balancer.admission": (
        *("balancer.access", "balancer.fleet", "balancer.persistence", "balancer.store"),
    ),
    "balancer.parts": (
        *("balancer.persistence", "balancer.ports", "balancer.tls", "balancer.tracing"),
        *("balancer.access", "balancer.admission", "balancer.batch_jobs", "balancer.jobs"),
        *("balancer.settings", "balancer.management", "balancer.history", "balancer.workers"),
        *("balancer.kept", "balancer.store.kept", "balancer.peering", "balancer.peers"),
        *("balancer.store", "balancer.store.records"),
        *("balancer.management.elsewhere", "balancer.management.steering"),
        *("balancer.api.links", "balancer.api.transport", "balancer.api.conversations"),
        *("balancer.conversations", "balancer.shared_conversations"),
        *(*RUNTIME, "balancer.fleet.core"),
    ),
    "balancer.numbers": ("balancer.parts", "balancer.management"),
    "balancer.doors": (
        *("balancer.parts", "balancer.settings", "balancer.ports", "balancer.peering"),
        *("balancer.api.app", "balancer.api.common", "balancer.api.transport"),
        *("balancer.management", "balancer.management.steering", "balancer.fleet.runtime"),
        "balancer.workers",
    ),
    "balancer.daemon": (
        *("balancer.parts", "balancer.numbers", "balancer.doors", "balancer.ports"),
        *("balancer.settings", "balancer.persistence", "balancer.store", "balancer.tls"),
        *("balancer.management", "balancer.management.steering", "balancer.workers"),
        "balancer.fleet.runtime",
    ),
    "balancer.__main__": ("balancer.settings", "balancer.daemon", "balancer.workers"),
}
"""Which rooms a room may import besides itself and `shared`; `a.b` stands for `a.b` and all in it.

The longest name that fits a module decides which room it is in. A file named here is a room of its
own: it stands above or below the others in its folder.
"""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}

RECORDS = [name for name in FILES if name.startswith("agent.chat.families.records.")]
"""Records of families: declarations, pure, and tested by going through all of them."""

PURE += tuple(RECORDS)
DECLARATIONS |= dict.fromkeys(RECORDS, "records of families")


def is_within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


def tree(name: str) -> ast.Module:
    """The syntax tree of `name`; all of them at once would take too much memory."""
    return ast.parse(FILES[name].read_text())


@cache
def imports(name: str) -> frozenset[str]:
    """What `name` imports: our modules by their name in the tree, others' by their full name."""
    return frozenset(found for node in ast.walk(tree(name)) for found in _imported(name, node))


def _imported(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(name, node)
        yield base
        yield from (each for alias in node.names if (each := f"{base}.{alias.name}") in FILES)


def _base(name: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = FILES[name].name == "__init__.py"
    parts = name.split(".")
    parent = parts[: len(parts) - node.level + is_package]
    return ".".join([*parent, node.module] if node.module else parent)


def reachable(name: str) -> Iterator[tuple[str, ...]]:
    """Chains of our modules from `name` on, each module once."""
    seen: set[str] = set()
    waiting = [(name,)]
    while waiting:
        chain = waiting.pop()
        if chain[-1] in seen:
            continue
        seen.add(chain[-1])
        yield chain
        waiting += [(*chain, each) for each in imports(chain[-1]) if each in FILES]


def test_imports_are_seen() -> None:
    assert {"asyncio", "signal", "shared.log"} <= imports("shared.lifecycle")
    assert {"agent.settings", "shared.lifecycle"} <= imports("agent.__main__")
    chains = {chain[-1]: chain for chain in reachable("agent.__main__")}
    assert chains["shared.errors"][0] == "agent.__main__"


def loads(name: str, libraries: AbstractSet[str]) -> list[str]:
    """The chains of imports that lead from `name` to one of `libraries`."""
    return [
        f"{' → '.join(chain)} imports {', '.join(sorted(found))}"
        for chain in reachable(name)
        if (found := {each.partition(".")[0] for each in imports(chain[-1])} & libraries)
    ]


def all_of(findings: Iterable[str]) -> str:
    """What to show. A test looks at all modules at once, and tells what is wrong with each."""
    return "\n".join(findings)


def test_pure_modules_exist() -> None:
    gone = [name for name in PURE if name not in FILES]
    assert not gone, f"take them off the table: {', '.join(gone)}"


def test_pure_modules_only_compute() -> None:
    findings = [each for name in PURE for each in loads(name, IMPURE)]
    assert not findings, all_of(findings)


def test_pure_modules_never_wait() -> None:
    waits = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    findings = [
        f"{FILES[name]}:{node.lineno}"
        for name in PURE
        for node in ast.walk(tree(name))
        if isinstance(node, waits)
    ]
    assert not findings, all_of(findings)


def room_of(name: str) -> str | None:
    """The room that `name` is in; none for a package that only holds rooms."""
    return max((room for room in MAY_IMPORT if is_within(name, room)), key=len, default=None)


def rooms_in(allowed: str) -> set[str]:
    """The room `allowed` and, if it is only a folder of rooms, all of them.

    What is named alone (`agent.engine.sampling.sampler` beside `agent.engine.sampling`) has to be
    allowed by name.
    """
    if allowed in MAY_IMPORT:
        return {allowed}
    return {room for room in MAY_IMPORT if is_within(room, allowed)}


def allowed_for(room: str) -> set[str]:
    known = {each for allowed in MAY_IMPORT[room] for each in rooms_in(allowed)}
    return known | {room, "shared"}


def strangers(name: str, imported: Iterable[str]) -> list[str]:
    """What of `imported` the module `name` may not know, each with the rule that it breaks."""
    room = room_of(name)
    if room is None:
        return []
    allowed = allowed_for(room)
    found = [
        (each, other)
        for each in imported
        if each in FILES and FILES[each].name != "__init__.py"
        if (other := room_of(each)) not in allowed
    ]
    rule = f"{room} may import {', '.join(sorted(allowed - {room}))}"
    return [f"{name} imports {each}, which is in {other}; {rule}" for each, other in found]


def test_modules_import_only_what_their_rooms_may_import() -> None:
    findings = [each for name in FILES for each in strangers(name, imports(name))]
    assert not findings, all_of(findings)


def test_an_import_against_an_arrow_is_named_with_its_rule() -> None:
    [finding] = strangers("agent.chat.calls.tools", ["agent.engine.step", "shared.errors"])
    assert finding.startswith("agent.chat.calls.tools imports agent.engine.step, which is in")
    assert finding.endswith("; agent.chat.calls may import shared")
    assert strangers("balancer.fleet.requests.matching", ["balancer.api.native.rpc"])


def test_every_module_is_in_a_room() -> None:
    homeless = [name for name in FILES if FILES[name].name != "__init__.py" and not room_of(name)]
    assert not homeless, f"give them a room in MAY_IMPORT: {', '.join(homeless)}"


def test_every_room_exists() -> None:
    named = {*MAY_IMPORT, *(each for allowed in MAY_IMPORT.values() for each in allowed)}
    gone = [room for room in named if not any(is_within(name, room) for name in FILES)]
    assert not gone, f"take them off the table: {', '.join(gone)}"


def test_arrows_between_rooms_run_one_way() -> None:
    graph = {room: allowed_for(room) - {room} for room in MAY_IMPORT}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the rooms


def test_every_room_introduces_itself() -> None:
    rooms = [name for name in FILES if FILES[name].name == "__init__.py"]
    silent = [name for name in rooms if not introduces_itself(name)]
    assert not silent, f"say what lives here, what it may import, who comes in: {all_of(silent)}"


def introduces_itself(room: str) -> bool:
    docstring = ast.get_docstring(tree(room)) or ""
    is_bounded = room in MAY_IMPORT and "." in room
    wanted = ("May import:", "Comes in:") if is_bounded else ()
    return bool(docstring) and all(part in docstring for part in wanted)


def test_the_house_imports_itself_relatively() -> None:
    findings = [
        f"{name} imports {each}"
        for name in FILES
        for each in imports(name)
        if is_within(each, "arriero")
    ]
    assert not findings, all_of(findings)


def test_only_one_package_touches_llama_cpp() -> None:
    touching = [
        name for name in FILES if any(is_within(each, "llama_cpp") for each in imports(name))
    ]
    assert [name for name in touching if not is_within(name, "agent.engine.llama")] == []


@pytest.mark.parametrize("name", SPARED)
def test_a_process_loads_no_library_that_it_does_without(name: str) -> None:
    findings = loads(name, SPARED[name])
    assert not findings, all_of(findings)


def test_only_one_module_touches_open_telemetry() -> None:
    touching = [
        name for name in FILES if any(is_within(each, "opentelemetry") for each in imports(name))
    ]
    assert touching == ["shared.tracing.open_telemetry"]


def test_the_dashboard_has_no_python_but_its_guard() -> None:
    assert [name for name in FILES if is_within(name, "dashboard")] == ["dashboard"]
    docstring, *rest = tree("dashboard").body
    assert isinstance(docstring, ast.Expr)
    assert [type(node) for node in rest] == [ast.If]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_not_imported_by_its_bare_name(package: str) -> None:
    with pytest.raises(ImportError, match=f"import this package as arriero.{package}"):
        importlib.import_module(package)


def test_declarations_do_nothing() -> None:
    working = [
        f"{name} has something to test: {node.name}"
        for name in DECLARATIONS
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not all(isinstance(each, ast.Expr) for each in node.body)
    ]
    assert not working, all_of(working)


def test_every_module_has_its_test_module() -> None:
    modules = [
        path
        for name, path in FILES.items()
        if not path.stem.startswith("__") and name not in DECLARATIONS
    ]
    wanted = {_test_of(path.relative_to(ROOT)) for path in modules}
    missing = sorted(str(path) for path in wanted if not (ROOT / path).exists())
    assert not missing, "\n".join(missing)


def test_every_test_module_has_its_module() -> None:
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    wanted = {path: _module_of(path) for path in tests if path.parent != Path("tests")}
    orphans = sorted(str(path) for path, module in wanted.items() if not module.exists())
    assert not orphans, "\n".join(orphans)


def _test_of(module: Path) -> Path:
    return Path("tests") / module.with_name(f"test_{module.name}")


def _module_of(test: Path) -> Path:
    """The module that `test` covers; a state machine may stand beside the plain tests."""
    stem = test.stem.removeprefix("test_").removesuffix("_machine")
    return ROOT / test.relative_to("tests").with_name(f"{stem}.py")
