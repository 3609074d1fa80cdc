from arriero.agent.upstream.protocol.abilities import (
    info_of,
    server_of,
    wants_new_names,
    with_new_names,
)
from arriero.agent.upstream.protocol.dialects import OLLAMA, OTHER, VLLM
from arriero.agent.upstream.protocol.listing import ListedModel
from arriero.agent.upstream.protocol.probes import first_probe
from arriero.shared.reports.model_info import Upstream

MODEL = ListedModel(id="m", owner="vllm", context_size=4096)


def test_what_was_shown_and_what_comes_with_its_kind() -> None:
    server = server_of(MODEL, VLLM, {"messages", "tools", "counts", "seed"}, has_new_names=False)
    assert {"messages", "tools", "thinking", "tokenize", "count_tokens"} <= server.abilities
    assert not {"json_schema", "embed", "counts", "seed"} & server.abilities
    assert (server.counts_at_end, server.refused, server.renamed) == (True, frozenset(), {})


def test_a_server_that_shows_little() -> None:
    server = server_of(MODEL, OTHER, {"messages"}, has_new_names=True)
    assert server.abilities == {"messages", "penalties"}
    assert not server.counts_at_end
    assert server.refused == {"seed"}
    assert server.renamed == {"max_tokens": "max_completion_tokens"}


def test_newer_models_of_openai_have_new_names() -> None:
    words = "Unsupported parameter: 'max_tokens' ... Use 'max_completion_tokens' instead."
    assert wants_new_names(words)
    assert not wants_new_names("the model does not exist")
    body = with_new_names(first_probe("m")).body
    assert "max_completion_tokens" in body
    assert "max_tokens" not in body


def test_what_balancers_hear() -> None:
    server = server_of(MODEL, OLLAMA, {"prompt", "embed"}, has_new_names=False)
    info = info_of(server, MODEL, "name", "host:1")
    assert (info.name, info.context_size, info.tasks) == ("name", 4096, ("generate", "embed"))
    assert info.fingerprint is not None
    assert info.upstream == Upstream(
        kind="ollama", address="host:1", abilities=("penalties", "prompt")
    )
    seeing = server_of(MODEL, OLLAMA, {"messages", "vision"}, has_new_names=False)
    assert info_of(seeing, MODEL, "name", "host:1").tasks == ("generate", "vision")
    assert info_of(seeing, MODEL, "name", "host:1").fingerprint is None
    assert "vision" in info_of(seeing, MODEL, "name", "host:1").abilities
    hearing = server_of(MODEL, OLLAMA, {"messages", "audio"}, has_new_names=False)
    assert info_of(hearing, MODEL, "name", "host:1").tasks == ("generate", "audio")
    silent = server_of(MODEL, OLLAMA, (), has_new_names=False)
    assert info_of(silent, MODEL, "name", "host:1").tasks == ()
