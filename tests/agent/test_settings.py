"""What an agent can be told, and what it refuses."""

import os
import socket
from pathlib import Path

import pytest

from arriero.agent.adapter_table import AdapterFile
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.settings import AgentSettings
from arriero.shared.quantities import Address
from arriero.shared.settings.load import SettingsError, load
from arriero.shared.tls.contexts import ClientFiles
from arriero.shared.tls.key_pair import KeyPair


def refused(*argv: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(AgentSettings, argv, {})
    return str(caught.value)


def test_defaults() -> None:
    settings = load(AgentSettings, [], {})
    assert settings.load_options == LoadOptions()
    assert settings.model_dump(exclude=set(LoadOptions.model_fields)) == {
        "balancer": ("ws://127.0.0.1:8060",),
        "tls_ca": None,
        "tls_cert": None,
        "tls_key": None,
        "name": socket.gethostname(),
        "label": (),
        "key_file": None,
        "peer_addr": None,
        "insecure": False,
        "model": None,
        "upstream": None,
        "upstream_key_file": None,
        "upstream_model": None,
        "upstream_name": None,
        "adapter": (),
        "chat_template": None,
        "chat_family": "auto",
        "step_timeout": 300.0,
        "cache_dir": None,
        "cache_limit": 10 * 2**30,
        "cache_scope": "shared",
        "models_dir": Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "arriero"
        / "models",
        "models_limit": None,
        "grammar_timeout": 2.0,
        "models_max": 4,
        "drain_timeout": 30.0,
        "log_format": "auto",
        "log_level": "info",
    }


def test_values() -> None:
    argv = [
        "--name",
        "box",
        "--slots",
        "8",
        "--model",
        "m.gguf",
        "--max-stall",
        "200ms",
        "--gpu-layers",
        "0",
    ]
    settings = load(AgentSettings, argv, {})
    assert (settings.name, settings.slots, settings.gpu_layers) == ("box", 8, 0)
    assert settings.model == Path("m.gguf")
    assert settings.max_stall == pytest.approx(0.2)


def test_the_cache_holds_a_slot_at_least() -> None:
    settings = load(AgentSettings, ["--context-size", "512", "--kv-cells", "600"], {})
    assert settings.kv_cells == 600
    complaint = refused("--context-size", "512", "--kv-cells", "500")
    assert "--kv-cells" in complaint
    assert "must hold one slot at least, which is 512" in complaint


def test_where_prompts_are_stored() -> None:
    settings = load(AgentSettings, ["--cache-dir", "/c", "--cache-limit", "500MB"], {})
    assert (settings.cache_dir, settings.cache_limit) == (Path("/c"), 500_000_000)
    assert "--cache-limit" in refused("--cache-limit", "0")
    assert "--cache-limit" in refused("--cache-limit", "much")


def test_chat_families() -> None:
    assert load(AgentSettings, ["--chat-family", "gpt-oss"], {}).chat_family == "gpt-oss"
    complaint = refused("--chat-family", "nobody")
    assert "--chat-family" in complaint
    assert "must be auto or one of apertus, apriel," in complaint


def test_several_balancers() -> None:
    settings = load(AgentSettings, ["--balancer", "ws://a:1/", "--balancer", "wss://b/x"], {})
    assert settings.balancer == ("ws://a:1", "wss://b/x")
    settings = load(AgentSettings, [], {"ARRIERO_AGENT_BALANCER": "ws://a:1,ws://b:2"})
    assert settings.balancer == ("ws://a:1", "ws://b:2")


@pytest.mark.parametrize(
    "url", ["", "http://a:1", "a:1", "ws://", "ws://a:x", "ws://a:0", "ws://[::1", "ws://a:99999"]
)
def test_no_balancer(url: str) -> None:
    assert refused(f"--balancer={url}").startswith(
        "--balancer: must be a WebSocket URL such as ws://127.0.0.1:8060"
    )


def test_a_balancers_url_holds_no_secrets() -> None:
    message = refused("--balancer", "ws://me:word@a:1")
    assert "without credentials" in message
    assert "word" not in message


def test_a_balancer_is_named_once() -> None:
    message = refused("--balancer", "ws://a:1", "--balancer", "ws://a:1/")
    assert message.startswith("--balancer: must name each balancer once")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--slots", "0"),
        ("--slots", "257"),
        ("--context-size", "0"),
        ("--threads", "0"),
        ("--max-stall", "0"),
        ("--gpu-layers", "-2"),
        ("--name", ""),
        ("--name", "x" * 201),
    ],
)
def test_limits(flag: str, value: str) -> None:
    assert refused(flag, value).startswith(f"{flag}: must ")


def test_models_limit_is_a_size_or_none() -> None:
    assert load(AgentSettings, ["--models-limit", "200GiB"], {}).models_limit == 200 * 2**30
    assert "--models-limit" in refused("--models-limit", "0")


def test_models_are_kept_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert load(AgentSettings, [], {}).models_dir == Path("/caches/arriero/models")


class TestLabels:
    def test_by_key(self) -> None:
        settings = load(AgentSettings, ["--label", "gpu=yes", "--label", "zone=a/b"], {})
        assert settings.labels == {"gpu": "yes", "zone": "a/b"}

    def test_from_the_environment(self) -> None:
        settings = load(AgentSettings, [], {"ARRIERO_AGENT_LABEL": "gpu=yes,zone="})
        assert settings.labels == {"gpu": "yes", "zone": ""}

    @pytest.mark.parametrize("label", ["gpu", "=yes", "a b=c", "a=b=c", "x" * 64 + "=y", "a=b\n"])
    def test_that_are_none(self, label: str) -> None:
        assert "--label" in refused("--label", label)
        assert "must be KEY=VALUE" in refused("--label", label)

    def test_one_a_key(self) -> None:
        assert "names gpu twice" in refused("--label", "gpu=yes", "--label", "gpu=no")


class TestTls:
    URL = ["--balancer", "wss://gpu-box:8060"]
    PAIR = ["--tls-cert", "a.pem", "--tls-key", "a.key"]

    def test_what_it_trusts_and_shows(self) -> None:
        argv = [*self.URL, "--tls-ca", "ca.pem", *self.PAIR]
        pair = KeyPair(Path("a.pem"), Path("a.key"))
        assert load(AgentSettings, argv, {}).tls == ClientFiles(Path("ca.pem"), pair)
        assert load(AgentSettings, [], {}).tls == ClientFiles()

    @pytest.mark.parametrize(
        ("argv", "problem"),
        [
            ([*URL, *PAIR[:2]], "--tls-key: is missing"),
            ([*URL, *PAIR[2:]], "--tls-cert: is missing"),
            (PAIR, "--balancer: must be wss://"),
            ([*URL, "--balancer", "ws://b:1", "--tls-ca", "a"], "not ws://b:1"),
        ],
    )
    def test_halves(self, argv: list[str], problem: str) -> None:
        with pytest.raises(SettingsError, match=problem):
            load(AgentSettings, argv, {})


def test_the_key_may_stand_in_a_variable_that_is_no_setting() -> None:
    assert load(AgentSettings, [], {"ARRIERO_AGENT_KEY": "ark_x"}).key_file is None
    assert "unknown flag --key" in refused("--key", "ark_x")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "ftp://h", "http://", "http://h:0", "http://u:p@h", "http://h/?a=1", "http://h:x"],
)  # fmt: skip
def test_an_upstream_is_a_url_without_credentials(url: str) -> None:
    assert "--upstream: must be a URL such as http://127.0.0.1:8000" in refused("--upstream", url)


def test_an_upstream_takes_the_place_of_a_model() -> None:
    settings = load(AgentSettings, ["--upstream", "http://h:8000/"], {})
    assert (settings.upstream, settings.is_pinned) == ("http://h:8000", True)
    assert not load(AgentSettings, [], {}).is_pinned
    told = refused("--upstream", "http://h", "--model", "m.gguf")
    assert "--model: cannot be used with --upstream" in told
    assert "--upstream-model: needs --upstream" in refused("--upstream-model", "m")
    assert "--upstream-name: needs --upstream" in refused("--upstream-name", "m")
    assert "--upstream-key-file: needs --upstream" in refused("--upstream-key-file", "k")


def test_what_equal_answers_cannot_be_had_with() -> None:
    assert load(AgentSettings, ["--deterministic"], {}).deterministic
    assert load(AgentSettings, [], {"ARRIERO_AGENT_DETERMINISTIC": "true"}).deterministic
    for other, value in (
        ("--kv-layout", "unified"),
        ("--projector", "p.gguf"),
        ("--upstream", "http://h"),
    ):
        told = refused("--deterministic", other, value)
        assert "--deterministic: " in told
        assert other in told


def test_adapters_are_names_files_and_maybe_scales() -> None:
    flags = ["--adapter", "loud=/a/l.gguf", "--adapter", "calm=c:d.gguf:0.5"]
    assert load(AgentSettings, flags, {}).adapters == (
        AdapterFile("loud", Path("/a/l.gguf"), 1.0),
        AdapterFile("calm", Path("c:d.gguf"), 0.5),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("loud", "NAME=FILE"),
        ("a:b=c.gguf", "NAME=FILE"),
        ("=c.gguf", "NAME=FILE"),
        ("a=", "NAME=FILE"),
        ("a=b:101", "scale"),
    ],
)
def test_what_is_no_adapter_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        load(AgentSettings, ["--adapter", text], {})


def test_where_peers_fetch_prefixes() -> None:
    settings = load(AgentSettings, ["--peer-addr", ":8070"], {})
    assert settings.peer_addr == Address("127.0.0.1", 8070)
    tls = ("--tls-cert", "c", "--tls-key", "k", "--balancer", "wss://a:1")
    for more in (tls, ("--insecure",)):
        assert load(AgentSettings, ["--peer-addr", "10.0.0.1:1", *more], {}).peer_addr is not None


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("10.0.0.1:1",), "other hosts reach 10.0.0.1:1, and prompts can be read on the way"),
        (("0.0.0.0:1", "--insecure"), "other agents cannot dial 0.0.0.0:1"),
        ((":1", "--upstream", "http://a:1"), "cannot be used with --upstream"),
        (("here",), "must be HOST:PORT"),
    ],
)
def test_where_they_cannot(argv: tuple[str, ...], complaint: str) -> None:
    assert refused("--peer-addr", *argv).startswith(f"--peer-addr: {complaint}")


def test_an_address_is_no_file_of_a_model() -> None:
    with pytest.raises(SettingsError, match="arriero models add ADDRESS"):
        load(AgentSettings, ["--model", "hf://org/repo/file.gguf"], {})
