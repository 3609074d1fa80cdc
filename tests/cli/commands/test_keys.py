import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from arriero.cli.commands.keys import main
from tests.client.fakes import FakeServer, says

SECRET = "ark_" + "s" * 43
KEY: dict[str, Any] = {
    "name": "ci",
    "role": "inference",
    "is_valid": True,
    "models": ["tiny"],
    "labels": None,
    "requests_per_minute": 60,
    "tokens_per_minute": None,
    "max_concurrent": None,
    "max_queued": None,
    "max_tokens": None,
    "priority": "default",
    "default_priority": "batch",
    "created_at": 1.7e9,
    "expires_at": 1.8e9,
    "revoked_at": None,
    "rotated_at": None,
    "last_used_at": None,
}


def test_create_prints_the_key_alone(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(KEY | {"key": SECRET}))
    argv = ["create", "ci", "--role", "inference", "--models", "tiny, big", "--expires", "90d"]
    limits = ["--requests-per-minute", "60", "--priority", "default"]
    limits += ["--default-priority", "batch"]
    assert main([*argv, *limits]) == 0
    method, path, body = balancer.seen[0]
    assert (method, path) == ("POST", "/api/v1/keys")
    assert json.loads(body) == {
        "name": "ci",
        "role": "inference",
        "models": ["tiny", "big"],
        "expires": "90d",
        "requests_per_minute": 60,
        "priority": "default",
        "default_priority": "batch",
    }
    told = capsys.readouterr()
    assert told.out == f"{SECRET}\n"
    assert "shown only once" in told.err and "expires at 2027" in told.err
    assert SECRET not in told.err


def test_an_agents_key_to_a_file(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    balancer.will(says(KEY | {"key": SECRET}))
    file = tmp_path / "agent.key"
    argv = ["create", "rack", "--role", "agent", "--label", "gpu=yes", "--output", str(file)]
    assert main([*argv, "--json"]) == 0
    assert json.loads(balancer.seen[0][2])["labels"] == {"gpu": "yes"}
    assert file.read_text() == f"{SECRET}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in "".join(capsys.readouterr())
    assert main(argv) == 2, "no file is overwritten, and no key made for nothing"
    assert len(balancer.seen) == 1


def test_rotate_revoke_and_list(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    revoked = KEY | {"revoked_at": 1.75e9, "is_valid": False, "models": None}
    balancer.will(says(KEY | {"key": SECRET}), says(revoked), says({"keys": [KEY, revoked]}))
    assert main(["rotate", "ci"]) == 0
    assert capsys.readouterr().out == f"{SECRET}\n"
    assert main(["revoke", "ci"]) == 0
    assert "ci is revoked" in capsys.readouterr().err
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"ci +inference +valid +tiny +60 requests per", listed)
    assert re.search(r"ci +inference +revoked", listed)
    assert [seen[:2] for seen in balancer.seen] == [
        ("POST", "/api/v1/keys/ci/rotate"),
        ("DELETE", "/api/v1/keys/ci"),
        ("GET", "/api/v1/keys"),
    ]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["create"], "create which key"),
        (["create", "ci"], "--role: is missing"),
        (["create", "ci", "--role", "agent", "--label", "gpu"], "--label: must be KEY=VALUE"),
        (["bootstrap"], "--state is missing"),
    ],
)
def test_what_is_missing_is_named(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert main(argv) == 2
    assert words in capsys.readouterr().err


def test_the_store_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = ["--state", f"sqlite:///{tmp_path}/state.db"]
    assert main(["bootstrap", *state]) == 0
    assert re.fullmatch(r"ark_[\w-]{43}\n", capsys.readouterr().out)
    assert main(["bootstrap", *state]) == 1
    assert "the admin key 'admin' exists already" in capsys.readouterr().err
    assert main(["create", "ci", "--role", "inference", *state]) == 0
    assert main(["create", "ci", "--role", "inference", *state]) == 1
    assert main(["create", "x", "--role", "viewer", "--expires", "soon", *state]) == 2
    assert "`expires` must be a duration" in capsys.readouterr().err
    assert main(["rotate", "ci", *state]) == 0
    assert main(["revoke", "ci", *state]) == 0
    capsys.readouterr()
    assert main(["list", "--json", *state]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(key["name"], key["is_valid"]) for key in listed] == [("admin", True), ("ci", False)]


def test_for_memory_it_makes_a_key_for_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bootstrap", "--state", "memory://"]) == 0
    told = capsys.readouterr()
    assert re.fullmatch(r"ark_[\w-]{43}\n", told.out)
    assert "--admin-key-file" in told.err
    assert main(["list", "--state", "memory://"]) == 2
    assert "memory:// stores no keys" in capsys.readouterr().err
