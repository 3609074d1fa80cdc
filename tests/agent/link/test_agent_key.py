"""The key is read for each dial, and no error has it."""

from pathlib import Path

import pytest

from arriero.agent.link.agent_key import NO_KEY, AgentKey
from arriero.agent.link.dialling import DialFailed

KEY = "ark_" + "a" * 43


def test_it_comes_from_the_environment() -> None:
    assert AgentKey(None, {"ARRIERO_AGENT_KEY": KEY}).headers() == {
        "Authorization": f"Bearer {KEY}"
    }
    assert AgentKey(None, {}).headers() == NO_KEY.headers() == {}


def test_the_file_wins_and_may_change(tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    file.write_text(f"{KEY}\n")
    key = AgentKey(file, {"ARRIERO_AGENT_KEY": "other"})
    assert key.headers() == {"Authorization": f"Bearer {KEY}"}
    file.write_text("ark_new")
    assert key.headers() == {"Authorization": "Bearer ark_new"}


@pytest.mark.parametrize("text", [f"{KEY} {KEY}", f"{KEY}\r\nX-Evil: 1", "x" * 600, "ñ"])
def test_what_cannot_be_a_header_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.key"
    file.write_text(text)
    with pytest.raises(DialFailed, match="--key-file: must hold one access key") as refusal:
        AgentKey(file, {}).headers()
    assert text not in str(refusal.value)


def test_a_file_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(DialFailed, match="--key-file: cannot read"):
        AgentKey(tmp_path / "none", {}).headers()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(DialFailed, match="is empty"):
        AgentKey(tmp_path / "empty", {}).headers()
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(DialFailed, match="it is not text"):
        AgentKey(tmp_path / "binary", {}).headers()
