"""What a balancer can be told, and what it refuses."""

import socket

import pytest

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.settings import BalancerSettings
from arriero.balancer.store.url import StoreUrl
from arriero.shared.quantities import Address
from arriero.shared.settings.load import SettingsError, load


def refused(*argv: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(BalancerSettings, argv, {})
    return str(caught.value)


def test_defaults() -> None:
    assert dict(load(BalancerSettings, [], {})) == {
        "inference_addr": Address("127.0.0.1", 8061),
        "management_addr": Address("127.0.0.1", 8060),
        "allowed_host": (),
        "allowed_origin": (),
        "public_url": None,
        "header_timeout": 10.0,
        "write_timeout": 30.0,
        "metrics_for_clients": False,
        "max_connections": 4096,
        "tls_cert": None,
        "tls_key": None,
        "agent_ca": None,
        "insecure": False,
        "without_keys": False,
        "state": StoreUrl("memory"),
        "balancer_name": socket.gethostname(),
        "workers": 1,
        "files": None,
        "max_file_size": 2**30,
        "files_limit": 64 * 2**30,
        "admin_key_file": None,
        "batches_outlive_keys": False,
        "max_buffered_requests": 256,
        "request_memory": 512 * 2**20,
        "routing": "cost",
        "buffered_request_timeout": 30.0,
        "early_headers": 25.0,
        "first_token_timeout": 120.0,
        "token_timeout": 30.0,
        "request_timeout": 600.0,
        "key_limits": CallerLimits(),
        "anonymous_limits": CallerLimits(),
        "responses_limit": 64 * 2**20,
        "responses_max_age": 3600.0,
        "heartbeat_interval": 1.0,
        "heartbeat_timeout": 5.0,
        "strict_fields": False,
        "media_urls": False,
        "model_source_http": (),
        "model_memory": 600.0,
        "drain_timeout": 30.0,
        "log_format": "auto",
        "log_level": "info",
    }


@pytest.mark.parametrize(
    ("argv", "is_strict"),
    [(["--strict-fields"], True), (["--strict-fields", "--state", "memory://"], True)]
    + [([f"--strict-fields={value}"], value == "true") for value in ("true", "false")],
)
def test_a_switch_needs_no_value(argv: list[str], is_strict: bool) -> None:
    assert load(BalancerSettings, argv, {}).strict_fields is is_strict


def test_workers_need_a_store_that_they_share() -> None:
    with pytest.raises(SettingsError, match=r"--workers: 2 processes need a --state .*memory://"):
        load(BalancerSettings, ["--workers", "2"], {})
    state = ["--state", "sqlite:///state.db"]
    assert load(BalancerSettings, ["--workers", "2", *state], {}).workers == 2
    with pytest.raises(SettingsError, match="--workers"):
        load(BalancerSettings, ["--workers", "65", *state], {})


def test_values() -> None:
    argv = ["--inference-addr", ":0", "--max-buffered-requests", "0", "--drain-timeout", "0"]
    settings = load(BalancerSettings, argv, {"ARRIERO_BALANCER_TOKEN_TIMEOUT": "1.5"})
    assert settings.inference_addr == Address("127.0.0.1", 0)
    assert (settings.max_buffered_requests, settings.drain_timeout) == (0, 0.0)
    assert settings.token_timeout == 1.5


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--max-buffered-requests", "-1"),
        ("--buffered-request-timeout", "0"),
        ("--first-token-timeout", "0"),
        ("--token-timeout", "199ms"),
        ("--request-timeout", "0"),
        ("--heartbeat-interval", "0"),
        ("--model-memory", "soon"),
        ("--management-addr", "8060"),
        ("--state", "redis://db"),
    ],
)
def test_limits(flag: str, value: str) -> None:
    assert refused(flag, value).startswith(f"{flag}: must ")


def test_a_silence_is_longer_than_a_heartbeat() -> None:
    assert refused("--heartbeat-interval", "5") == (
        "--heartbeat-timeout: must be longer than --heartbeat-interval (5s), not 5s"
    )


def test_a_store_that_is_refused_is_named_without_its_password() -> None:
    assert refused("--state", "postgresql://ana:secret@db") == (
        "--state: must name a database: postgresql://USER@HOST/DATABASE, "
        "not 'postgresql://ana:***@db'"
    )


def test_hosts_may_be_repeated_and_have_to_be_hosts() -> None:
    argv = ["--allowed-host", "gpu-box", "--allowed-host", "gpu-box.example:8443"]
    settings = load(BalancerSettings, argv, {})
    assert settings.allowed_host == ("gpu-box", "gpu-box.example:8443")
    assert "--allowed-host" in refused("--allowed-host", "http://gpu-box")
    assert "--model-source-http" in refused("--model-source-http", "http://files.lan")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--tls-cert", "a"], "--tls-key: is missing"),
        (["--tls-key", "a"], "--tls-cert: is missing"),
        (["--agent-ca", "a"], "--agent-ca: needs --tls-cert"),
    ],
)
def test_a_certificate_needs_its_key(argv: list[str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load(BalancerSettings, argv, {})
