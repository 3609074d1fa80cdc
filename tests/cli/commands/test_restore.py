import json
from pathlib import Path

import pytest

from arriero.cli.commands import backup
from arriero.cli.commands.restore import main
from tests.cli.commands.test_backup import filled


async def test_a_store_is_restored_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await filled(tmp_path / "a.db")
    assert backup.main([str(tmp_path / "b.tar"), "--state", f"sqlite:///{tmp_path}/a.db"]) == 0
    argv = [str(tmp_path / "b.tar"), "--state", f"sqlite:///{tmp_path}/c.db"]
    assert main(argv) == 0
    assert f"{tmp_path}/c.db: as it was at " in capsys.readouterr().out
    assert main(argv) == 2
    assert "is there; move it away first" in capsys.readouterr().err
    (tmp_path / "c.db").unlink()
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_files"] == 0
