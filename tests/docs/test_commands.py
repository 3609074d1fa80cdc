"""What the written pages tell a reader to type, the programs take; names of code are there."""

import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.docs.typed_commands import blocks, commands, missing_names, wrong_commands, wrong_files
from tests.docs.written_pages import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES)
def test_programs_take_the_commands_and_files_of_each_page(page: str) -> None:
    text = (ROOT / page).read_text()
    assert not [*wrong_commands(page, text), *wrong_files(page, text), *missing_names(page, text)]


def test_what_they_do_not_take_is_found() -> None:
    page = """
```sh
sudo X=1 /opt/bin/agent --ballancer ws://here:8060 \\
    --slots 4        # a comment
balancer --max-buffered-requests many && arriero keys create a --rolle agent
arriero fly | agent --no-flag; arriero keys >file list
```
```toml
# /etc/arriero/agent.toml
slotz = 4
```
```toml
# models.toml
models = [{name = "a"}]
```
See `tests/docs/typed_commands.py` (`commands`, `flights`).
"""
    assert [each[0] for each in commands(page)] == [
        *("agent", "balancer", "arriero", "arriero", "agent", "arriero")
    ]
    found = [*wrong_commands("page", page), *wrong_files("page", page)]
    wrong = ["--ballancer", "must be", "--rolle", "no such command", "--no-flag", "slotz", "source"]
    assert len(found) == len(wrong)
    assert all(words in each for words, each in zip(wrong, found, strict=True))
    assert list(missing_names("page", page)) == [
        "page: `tests/docs/typed_commands.py` has no `flights`"
    ]


def test_the_certificates_of_the_access_page_satisfy_strict_clients(tmp_path: Path) -> None:
    """Python's have been strict since 3.13: an authority has to say what its key is for."""
    page = (ROOT / "docs" / "access.md").read_text()
    [script] = [block.partition("# 2.")[0] for block in blocks(page, "sh") if "openssl" in block]
    assert _is_strictly_right(script, tmp_path)
    usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
    assert not _is_strictly_right(script.replace(usage, ""), tmp_path)


def _is_strictly_right(script: str, folder: Path) -> bool:
    run = partial(subprocess.run, cwd=folder, capture_output=True, check=False, timeout=30)
    made = run(["sh", "-euc", script])
    assert made.returncode == 0, made.stderr
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "server.pem"]
    return run(command).returncode == 0
