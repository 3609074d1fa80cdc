"""The rules of the house, read from the source: what may import what, and where tests are."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("shared", "agent", "balancer", "dashboard")

PURE = (
    "agent.chat.argument_grammar",
    "agent.chat.attribution",
    "agent.chat.breakers",
    "agent.chat.call_grammar",
    "agent.chat.call_syntax",
    "agent.chat.calls.gemma_calls",
    "agent.chat.calls.json_calls",
    "agent.chat.calls.literals",
    "agent.chat.calls.named_calls",
    "agent.chat.calls.python_calls",
    "agent.chat.calls.tagged_calls",
    "agent.chat.channels",
    "agent.chat.choices",
    "agent.chat.echo",
    "agent.chat.families",
    "agent.chat.family",
    "agent.chat.gbnf",
    "agent.chat.gbnf_words",
    "agent.chat.grammar",
    "agent.chat.lark",
    "agent.chat.message_form",
    "agent.chat.notations",
    "agent.chat.parts",
    "agent.chat.passed_over",
    "agent.chat.reader",
    "agent.chat.reasoning_count",
    "agent.chat.recognition",
    "agent.chat.sandbox",
    "agent.chat.schema",
    "agent.chat.schema_check",
    "agent.chat.schema_place",
    "agent.chat.schema_ways",
    "agent.chat.segmenter",
    "agent.chat.segments",
    "agent.chat.stop_strings",
    "agent.chat.tag_notations",
    "agent.chat.template",
    "agent.chat.tools",
    "agent.chat.transcript",
    "agent.engine.accounting",
    "agent.engine.candidates",
    "agent.engine.admission",
    "agent.engine.capacity",
    "agent.engine.cells",
    "agent.engine.chance",
    "agent.engine.confidence",
    "agent.engine.chunk_size",
    "agent.engine.detokenizer",
    "agent.engine.embedding_plan",
    "agent.engine.fair_split",
    "agent.engine.line",
    "agent.engine.log_probs",
    "agent.engine.memory",
    "agent.engine.mirostat",
    "agent.engine.planner",
    "agent.engine.prefix_cache",
    "agent.engine.progress",
    "agent.engine.prompt_budget",
    "agent.engine.recovery",
    "agent.engine.recurrence",
    "agent.engine.refusal",
    "agent.engine.repetition",
    "agent.engine.roster",
    "agent.engine.sampling",
    "agent.engine.scheduler",
    "agent.engine.sequence",
    "agent.engine.speculation",
    "agent.engine.statistics",
    "agent.engine.step",
    "agent.engine.mixing",
    "agent.engine.shelf",
    "agent.engine.step_cost",
    "agent.engine.stored_prompt",
    "agent.engine.writers",
    "agent.engine.window",
    "agent.link.active_request",
    "agent.link.answer",
    "agent.link.decisions",
    "agent.link.reporter",
    "agent.link.queries",
    "agent.link.requests",
    "agent.link.session",
    "agent.link.slots",
    "agent.link.utterance",
    "agent.restarts",
    "balancer.doors.anthropic.api",
    "balancer.doors.anthropic.blocks",
    "balancer.doors.anthropic.errors",
    "balancer.doors.anthropic.events",
    "balancer.doors.anthropic.requests",
    "balancer.doors.collected",
    "balancer.doors.log_probs",
    "balancer.doors.field_names",
    "balancer.doors.given",
    "balancer.doors.embed_inputs",
    "balancer.doors.inference_api",
    "balancer.doors.native_api",
    "balancer.doors.native_events",
    "balancer.doors.native_questions",
    "balancer.doors.native_requests",
    "balancer.doors.openai.answers",
    "balancer.doors.openai.api",
    "balancer.doors.openai.embeddings",
    "balancer.doors.openai.errors",
    "balancer.doors.openai.formats",
    "balancer.doors.openai.log_probs",
    "balancer.doors.openai.reasoning",
    "balancer.doors.openai.requests",
    "balancer.doors.openai.responses.api",
    "balancer.doors.openai.responses.events",
    "balancer.doors.openai.responses.items",
    "balancer.doors.openai.responses.listing",
    "balancer.doors.openai.responses.requests",
    "balancer.doors.openai.responses.store",
    "balancer.doors.openai.rerank",
    "balancer.doors.openapi.bodies",
    "balancer.doors.openapi.document",
    "balancer.doors.openapi.schemas",
    "balancer.doors.parts",
    "balancer.doors.rpc",
    "balancer.doors.vectors",
    "balancer.fleet.abilities",
    "balancer.fleet.alarms",
    "balancer.fleet.asked",
    "balancer.fleet.decisions",
    "balancer.fleet.desk",
    "balancer.fleet.dispatch",
    "balancer.fleet.exchange",
    "balancer.fleet.fleet",
    "balancer.fleet.lane",
    "balancer.fleet.limits",
    "balancer.fleet.matching",
    "balancer.fleet.ranking",
    "balancer.fleet.readable",
    "balancer.fleet.recorder",
    "balancer.fleet.requests",
    "balancer.fleet.roster",
    "balancer.fleet.tally",
    "balancer.fleet.view",
    "balancer.management.api",
    "balancer.management.shapes",
    "balancer.management.throughput",
    "shared.errors",
    "shared.inference",
    "shared.messages",
    "shared.pulse",
    "shared.quantities",
    "shared.sampling",
    "shared.queries",
    "shared.strict",
    "shared.template_variables",
    "shared.validation",
)
"""Modules that only compute, however far their imports are followed within the house."""

IMPURE = {
    *("asyncio", "aiohttp", "websockets", "llama_cpp"),
    *("time", "random", "logging", "socket", "threading"),
}

MAY_IMPORT = {
    "shared": ("shared",),
    "agent": ("agent", "shared"),
    "agent.engine": ("agent.engine", "shared"),
    "agent.chat": ("agent.chat", "agent.engine", "shared"),
    "agent.link": ("agent.link", "agent.chat", "agent.engine", "shared"),
    "balancer": ("balancer", "shared"),
    "balancer.fleet": ("balancer.fleet", "shared"),
    "balancer.doors": ("balancer.doors", "balancer.fleet", "shared"),
    "balancer.management": ("balancer.management", "balancer.doors", "balancer.fleet", "shared"),
    "dashboard": (),
}
"""Which parts a part may know; the longest name that fits a module decides."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def is_within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


@cache
def imports(name: str) -> frozenset[str]:
    """What `name` imports: our modules by their name in the tree, others' by their full name."""
    tree = ast.parse(FILES[name].read_text())
    return frozenset(found for node in ast.walk(tree) for found in _imported(name, node))


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


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_only_computes(name: str) -> None:
    assert name in FILES, "a pure module is gone: take it off the table"
    for chain in reachable(name):
        touched = {each.partition(".")[0] for each in imports(chain[-1])} & IMPURE
        assert not touched, f"{' → '.join(chain)} imports {', '.join(sorted(touched))}"


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_never_waits(name: str) -> None:
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    tree = ast.parse(FILES[name].read_text())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, waits)]


@pytest.mark.parametrize("name", FILES)
def test_a_module_knows_only_what_its_part_may_know(name: str) -> None:
    part = max((part for part in MAY_IMPORT if is_within(name, part)), key=len)
    ours = {each for each in imports(name) if each in FILES}
    strangers = {
        each for each in ours if not any(is_within(each, known) for known in MAY_IMPORT[part])
    }
    assert not strangers


@pytest.mark.parametrize("name", FILES)
def test_the_house_imports_itself_relatively(name: str) -> None:
    assert not [each for each in imports(name) if is_within(each, "arriero")]


def test_only_one_package_touches_llama_cpp() -> None:
    touching = [
        name for name in FILES if any(is_within(each, "llama_cpp") for each in imports(name))
    ]
    assert [name for name in touching if not is_within(name, "agent.engine.llama")] == []


def test_the_dashboard_has_no_python_but_its_guard() -> None:
    assert [name for name in FILES if is_within(name, "dashboard")] == ["dashboard"]
    docstring, *rest = ast.parse(FILES["dashboard"].read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert [type(node) for node in rest] == [ast.If]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_not_imported_by_its_bare_name(package: str) -> None:
    with pytest.raises(ImportError, match=f"import this package as arriero.{package}"):
        importlib.import_module(package)


def test_every_module_has_its_test_module() -> None:
    modules = [path for path in FILES.values() if not path.stem.startswith("__")]
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
