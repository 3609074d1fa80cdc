"""SHA-256 of files."""

import hashlib
from pathlib import Path

from arriero.agent.models.folder.checksum import hash_of, sha256_of

DATA = bytes(range(256)) * 10_000


def test_the_hash_of_a_file_and_of_one_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA[:1_500_000])
    running = hash_of(path)
    running.update(DATA[1_500_000:])

    assert running.hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert sha256_of(path) == hashlib.sha256(DATA[:1_500_000]).hexdigest()
