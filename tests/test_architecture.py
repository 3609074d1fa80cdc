"""The rules of the house, read from the source. What breaks one is told what to do about it."""

import ast
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("shared", "agent", "balancer", "dashboard", "client", "cli")

LAYERS = (
    "shared dashboard",
    "client",
    "cli",
    # ---- an agent
    "agent/sequence_id agent/outgoing_proxy agent/cgroups agent/cpu_cores agent/host_facts "
    "agent/child agent/json_lines agent/thread_pool agent/engine/model_error",
    "agent/engine/load_options agent/engine/llama/cells/layout",
    "agent/engine/llama/cells/recurrent_rows",
    "agent/generation/port agent/engine/statistics agent/upstream/protocol",
    "agent/gguf",
    "agent/models",
    "agent/link agent/upstream",
    "agent/discovery",
    "agent/engine",
    "agent/engine/kv_cache agent/engine/cost agent/engine/speculation",
    "agent/engine/scheduling",
    "agent/engine/llama",
    "agent/engine/opener agent/engine/step_loop agent/engine/worker",
    "agent/chat agent/adapter_table",
    "agent/generation agent/peers",
    "agent",
    # ---- a balancer
    "balancer/tls balancer/control balancer/store "
    "balancer/cluster/notifications balancer/cluster/peer_store balancer/cluster/postgres_peers "
    "balancer/cluster/questions",
    "balancer/access",
    "balancer/fleet",
    "balancer/fleet/routing",
    "balancer/fleet/requests",
    "balancer/fleet/queries",
    "balancer/fleet/core",
    "balancer/fleet/runtime",
    "balancer/diary balancer/history balancer/jobs balancer/tracing",
    "balancer/durable",
    "balancer/api/transport balancer/api/openapi",
    "balancer/api/common balancer/api/fields balancer/api/guard balancer/api/links "
    "balancer/api/route",
    "balancer/api",
    "balancer/management balancer/cluster",
    "balancer balancer/cluster/peering balancer/cluster/supervisor balancer/management/routes",
    "cli/commands/keys cli/commands/backup cli/commands/restore",
)
"""Folders from the bottom up: each imports what is in its own layer or below it, nothing above.

A folder stands for all in it that no longer name covers. A file is named only where it stands
above or below the others of its folder.
"""

APART = {
    "agent": "balancer client cli",
    "balancer": "agent client cli",
    "cli": "agent",
    "agent/engine": "agent/link agent/upstream agent/discovery agent/models agent/generation",
    "agent/chat": "agent/link agent/upstream agent/discovery agent/models agent/engine/llama",
    "agent/generation": "agent/link agent/upstream agent/engine/llama agent/engine/scheduling",
    "agent/peers": "agent/link agent/engine/llama agent/engine/scheduling",
    "balancer/fleet": "balancer/store balancer/tls balancer/jobs",
    "balancer/api": "balancer/control balancer/durable balancer/history balancer/fleet/core",
    "balancer/management": "balancer/fleet/core balancer/fleet/requests balancer/durable",
}
"""Folders that never import from others, although these stand below them."""

OWNERS = {
    "llama_cpp": "agent/engine/llama",
    "jinja2": "agent/chat/templates",
    "websockets": "agent/link",
    "sqlalchemy": "balancer/store",
    "alembic": "balancer/store",
    "prometheus_client": "balancer/management/metrics",
    "opentelemetry": "shared/tracing/open_telemetry",
}
"""Libraries that only one folder or file may import."""

IMPURE = {
    *("asyncio", "aiohttp", "websockets", "llama_cpp", "time", "random", "secrets", "uuid"),
    *("logging", "socket", "select", "threading", "queue", "multiprocessing", "subprocess"),
    *("shutil", "tempfile", "fcntl", "mmap"),
}
"""Libraries of clocks, chance, logs, sockets, threads, processes and files."""

SHELLS = {
    "*": "__main__ routes *_routes",
    "agent": "balancer_links child daemon device_memory gpus nvidia probe served_model settings "
    "thread_pool upstream_daemon",
    "agent/chat/constraints": "constrain",
    "agent/chat/templates": "chat_templates",
    "agent/discovery": "links",
    "agent/engine": "fair_lock opener pace step_loop worker",
    "agent/engine/embedding": "embedder",
    "agent/engine/grammar": "grammar_process grammars",
    "agent/engine/llama": "*",
    "agent/engine/llama/adapters": "adapters parts",
    "agent/engine/llama/cells": "edits states stream_cells unified_cells",
    "agent/engine/llama/media": "*",
    "agent/engine/prompt_store": "cache_folder disk_cache known_files prompt_store",
    "agent/engine/speculation": "drafting model_drafter",
    "agent/generation": "local_generation prepar* query_executor *_spans",
    "agent/link": "balancer_socket connection dialling",
    "agent/models": "downloader fetch_process fetcher file_lock hub located "
    "models_folder remote_header source_headers",
    "agent/peers": "counts kv_receiver kv_sender kv_transfer wire",
    "agent/supervision": "assigned_settings engine_process engine_run fit_process fit_reader "
    "model_fetch place standby supervisor supervisor_protocol",
    "agent/upstream": "client generation queries watch",
    "balancer": "*",
    "balancer/access": "access key_service offline open_access session_service",
    "balancer/api": "app conversations endpoint guard limit_headers route",
    "balancer/api/common": "answering counting idempotency merge models",
    "balancer/api/links": "fetching filling",
    "balancer/api/native": "socket_key web_socket",
    "balancer/api/openai/batches": "boundary line_handlers",
    "balancer/api/openai/conversations": "book",
    "balancer/api/openai/responses": "answer background web_socket",
    "balancer/api/transport": "bodies callers connections doors fault_reports http "
    "patience sockets streaming",
    "balancer/cluster": "cluster_view inquiries peering peers postgres_peers responder "
    "supervisor worker",
    "balancer/diary": "diary",
    "balancer/durable": "*service",
    "balancer/fleet/runtime": "*",
    "balancer/history": "history_task shared_past",
    "balancer/jobs": "batch_run batches blobs files files_place inputs jobs remote_blobs results "
    "runner tools",
    "balancer/management": "agent_log balancers events page",
    "balancer/management/metrics": "fleet_collector loop_delay",
    "balancer/management/steering": "desired_state_service drains",
    "balancer/store": "conversations database diary health history history_writer jobs retained "
    "store write_behind",
    "balancer/tls": "certificates tls_protocol",
    "cli": "arguments desired_state load server_batch waiting_line",
    "cli/commands": "*",
    "client": "__init__ batch_jobs batches client http management socket",
    "shared": "lifecycle line_writer log log_bell",
    "shared/framing": "handshake unsent",
    "shared/reports": "log_tail",
    "shared/settings": "*",
    "shared/tracing": "open_telemetry span_queue tracer",
}
"""The files of each folder that are shells, by patterns; `*` is any folder. All others are pure."""

SPARED = {
    "agent/supervision/supervisor": {"numpy", "llguidance", "llama_cpp", "jinja2", "aiohttp"},
    "agent/upstream_daemon": {"numpy", "llguidance", "llama_cpp", "jinja2", "gguf"},
    "balancer/daemon": {"numpy", "llguidance", "llama_cpp", "jinja2", "websockets"},
}
"""Libraries that a process does without: each takes up to 0.2 s of every start."""


@dataclass(frozen=True)
class Module:
    """What the rules ask of a file. It is named by its path, without the suffix."""

    name: str
    libraries: frozenset[str]
    modules: frozenset[str]
    waits: bool
    docstring: str

    @property
    def is_package(self) -> bool:
        return self.name.endswith("/__init__")


@dataclass(frozen=True)
class House:
    """The files of the packages."""

    modules: Mapping[str, Module]

    def chains(self, name: str) -> Iterator[tuple[str, ...]]:
        """Chains of imports from `name` on, to each module once."""
        seen: set[str] = set()
        waiting = [(name,)]
        while waiting:
            chain = waiting.pop()
            if chain[-1] not in seen:
                seen.add(chain[-1])
                yield chain
                waiting += [(*chain, each) for each in self.modules[chain[-1]].modules]

    def impure(self) -> set[str]:
        """The modules that load a library which pure ones do without, themselves or by others."""
        found: set[str] = set()
        more = {each.name for each in self.modules.values() if each.libraries & IMPURE}
        while more:
            found |= more
            more = {each.name for each in self.modules.values() if each.modules & found} - found
        return found


def house_of(sources: Mapping[str, str]) -> House:
    """The house made of these texts by path."""
    names = {path.removesuffix(".py") for path in sources}
    ours = {name for name in names if name.partition("/")[0] in PACKAGES}
    code = {name: _module(name, sources[f"{name}.py"], ours) for name in ours}
    return House(code)


def _module(name: str, source: str, names: set[str]) -> Module:
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    imported = {each for node in nodes for each in _imported_relatively(name, node)}
    return Module(
        name=name,
        libraries=frozenset(each for node in nodes for each in _libraries(node)),
        modules=frozenset(
            own for each in imported for own in (each, f"{each}/__init__") if own in names - {name}
        ),
        waits=any(isinstance(node, WAITS) or _works_async(node) for node in nodes),
        docstring=ast.get_docstring(tree) or "",
    )


WAITS = ast.Await | ast.AsyncFor | ast.AsyncWith


def _works_async(node: ast.AST) -> bool:
    """Whether the node is an async function with a body; a protocol's methods have none."""
    return isinstance(node, ast.AsyncFunctionDef) and any(
        not isinstance(line, ast.Expr) for line in node.body
    )


def _libraries(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield (node.module or "").partition(".")[0]


def _imported_relatively(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.level:
        above = name.split("/")[: -node.level]
        base = "/".join([*above, *(node.module.split(".") if node.module else ())])
        yield from (base, *(f"{base}/{alias.name}" for alias in node.names))


def is_within(name: str, part: str) -> bool:
    return f"{name}/".startswith(f"{part}/")


def height(name: str) -> tuple[int, str]:
    """The layer of a module, counted from below, and the name in `LAYERS` that covers it."""
    named = {part: layer for layer, row in enumerate(LAYERS) for part in row.split()}
    part = max((each for each in named if is_within(name, each)), key=len)
    return named[part], part


def is_shell(name: str) -> bool:
    folder, _, stem = name.rpartition("/")
    patterns = f"{SHELLS['*']} {SHELLS.get(folder, '')}".split()
    return any(fnmatch(stem, pattern) for pattern in patterns)


def arrows_run_down(house: House) -> Iterator[str]:
    for name, module in house.modules.items():
        for other in (each for each in module.modules if not house.modules[each].is_package):
            (own_layer, own), (layer, part) = height(name), height(other)
            if layer > own_layer:
                yield (
                    f"{name} imports {other}, but {part} is a layer above {own}: move what it needs"
                    " down, or let its caller pass it in. If the folder itself is at a wrong"
                    " height, move it in LAYERS"
                )


def folders_stay_apart(house: House) -> Iterator[str]:
    apart = [(folder, each) for folder, others in APART.items() for each in others.split()]
    for name, module in house.modules.items():
        for folder, unknown in apart:
            for other in module.modules:
                if is_within(name, folder) and is_within(other, unknown):
                    yield (
                        f"{name} imports {other}, but {folder} knows nothing of {unknown}: let its"
                        " caller pass in what it needs, or put what both need into a layer below"
                    )


def no_imports_in_a_circle(house: House) -> Iterator[str]:
    try:
        TopologicalSorter({each.name: each.modules for each in house.modules.values()}).prepare()
    except CycleError as error:
        circle = " imports ".join(reversed(error.args[1]))
        yield f"{circle}: put what they share into one file that imports none of them"


def libraries_have_one_owner(house: House) -> Iterator[str]:
    for name, module in house.modules.items():
        for library in sorted(module.libraries & OWNERS.keys()):
            if not is_within(name, OWNERS[library]):
                yield f"{name} imports {library}: only {OWNERS[library]} does; ask that for it"


def what_is_no_shell_is_pure(house: House) -> Iterator[str]:
    impure = house.impure()
    for name, module in house.modules.items():
        if is_shell(name):
            continue
        for each in sorted((module.libraries & IMPURE) | (module.modules & impure)):
            yield (
                f"{name} imports {each}, and is pure: let it take time, randomness and the like as"
                " values and return decisions for a shell to carry out, or name it in SHELLS"
            )
        if module.waits:
            yield (
                f"{name} has an async function or an await, and is pure: move what waits into a"
                " shell that calls it, or name it in SHELLS"
            )


def processes_spare_libraries(house: House) -> Iterator[str]:
    for start in SPARED.keys() & house.modules.keys():
        for chain in house.chains(start):
            for library in sorted(house.modules[chain[-1]].libraries & SPARED[start]):
                yield (
                    f"{' imports '.join(chain)} imports {library}, which makes the start of this"
                    " process slower: import it in the function that needs it, or cut the chain"
                )


def the_house_imports_itself_relatively(house: House) -> Iterator[str]:
    for name, module in house.modules.items():
        if module.libraries & {"arriero", *PACKAGES}:
            yield f"{name} imports its own house by name: write `from ..folder.module import name`"


def folders_introduce_themselves(house: House) -> Iterator[str]:
    for name, module in house.modules.items():
        if module.is_package and not module.docstring:
            yield f"{name} has no docstring: say in a sentence what lives in this folder"


Rule = Callable[[House], Iterator[str]]

RULES: tuple[Rule, ...] = (
    arrows_run_down,
    folders_stay_apart,
    no_imports_in_a_circle,
    libraries_have_one_owner,
    what_is_no_shell_is_pure,
    processes_spare_libraries,
    the_house_imports_itself_relatively,
    folders_introduce_themselves,
)


def python_files(*folders: str) -> dict[str, Path]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path for path in paths}


@pytest.fixture(scope="module")
def house() -> House:
    return house_of({name: path.read_text() for name, path in python_files(*PACKAGES).items()})


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps(rule: Rule, house: House) -> None:
    findings = sorted(rule(house))
    assert not findings, "\n".join(findings)


BROKEN: tuple[tuple[Rule, dict[str, str]], ...] = (
    (
        arrows_run_down,
        {"agent/engine/step": "from .llama import model", "agent/engine/llama/model": ""},
    ),
    (arrows_run_down, {"shared/errors": "from ..client.http import Http", "client/http": ""}),
    (folders_stay_apart, {"balancer/parts": "from ..agent import daemon", "agent/daemon": ""}),
    (folders_stay_apart, {"agent/engine/step": "from ..link import codec", "agent/link/codec": ""}),
    (no_imports_in_a_circle, {"cli/a": "from .b import B", "cli/b": "def b():\n  from . import a"}),
    (libraries_have_one_owner, {"agent/engine/worker": "import llama_cpp.mtmd"}),
    (what_is_no_shell_is_pure, {"balancer/fleet/limits": "from time import monotonic"}),
    (what_is_no_shell_is_pure, {"balancer/fleet/limits": "async def wait() -> None:\n    return"}),
    (
        what_is_no_shell_is_pure,
        {"shared/errors": "from .log import Log", "shared/log": "import logging"},
    ),
    (
        processes_spare_libraries,
        {"balancer/daemon": "from . import a", "balancer/a": "import numpy"},
    ),
    (the_house_imports_itself_relatively, {"cli/load": "from arriero.client import http"}),
    (
        the_house_imports_itself_relatively,
        {"cli/load": "import client", "client/__init__": "'...'"},
    ),
    (folders_introduce_themselves, {"cli/__init__": "SIZE = 1"}),
)


@pytest.mark.parametrize(("rule", "sources"), BROKEN)
def test_what_breaks_a_rule_is_found_and_told_what_to_do(
    rule: Rule, sources: dict[str, str]
) -> None:
    [finding] = rule(house_of({f"{name}.py": text for name, text in sources.items()}))
    where, _, what_to_do = finding.partition(": ")
    assert next(iter(sources)) in where
    assert what_to_do


def test_what_keeps_the_rules_is_not_found() -> None:
    sources = {
        "shared/errors.py": "import json",
        "shared/inference/values.py": "from typing import Protocol\nfrom ..errors import A\n"
        "class P(Protocol):\n    def p(self) -> int: ...",
        "balancer/fleet/limits.py": "from ...shared.errors import A\ndef l() -> int:\n  return 1",
        "balancer/api/native/routes.py": "import asyncio\nfrom ...fleet import limits",
        "agent/engine/llama/model.py": "import llama_cpp",
        "tests/balancer/fleet/test_limits.py": "import time",
        "tests/balancer/fleet/test_limits_machine.py": "",
    }
    assert [finding for rule in RULES for finding in rule(house_of(sources))] == []


def test_the_tables_name_what_exists(house: House) -> None:
    named = {part for row in LAYERS for part in row.split()}
    named |= {
        *APART,
        *OWNERS.values(),
        *SPARED,
        *(each for row in APART.values() for each in row.split()),
    }
    gone = [part for part in named if not any(is_within(each, part) for each in house.modules)]
    assert not gone, f"take them off LAYERS, APART, OWNERS or SPARED: {', '.join(gone)}"


def test_every_shell_needs_to_be_one(house: House) -> None:
    impure = house.impure()
    shells = [each.name for each in house.modules.values() if each.waits or each.name in impure]
    idle = [
        f"{folder}: {pattern}"
        for folder, patterns in SHELLS.items()
        for pattern in patterns.split()
        if not any(fnmatch(name, f"{folder}/{pattern}") for name in shells)
    ]
    assert not idle, f"these are pure or gone, take them off SHELLS: {', '.join(idle)}"


def test_the_dashboard_has_no_python_but_its_guard(house: House) -> None:
    assert [name for name in house.modules if is_within(name, "dashboard")] == [
        "dashboard/__init__"
    ]
    docstring, *rest = ast.parse((ROOT / "dashboard/__init__.py").read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert [type(node) for node in rest] == [ast.If]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_not_imported_by_its_bare_name(package: str) -> None:
    with pytest.raises(ImportError, match=f"import this package as arriero.{package}"):
        importlib.import_module(package)
