"""What has arrived of a file."""

import hashlib
from pathlib import Path

from arriero.agent.models.models_folder import part_of
from arriero.agent.models.part_file import PartFile, hash_of, sha256_of


def test_a_part_goes_on_where_an_earlier_one_ended_and_hashes_it_all(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "m.gguf"
    with PartFile(file, is_hashed=True) as part:
        part.append(b"GGUF-one")
    with PartFile(file, is_hashed=True) as part:
        assert part.size == 8
        part.append(b"-two")
        assert part.sha256() == hashlib.sha256(b"GGUF-one-two").hexdigest()
        assert not file.exists()
        part.finish()

    assert file.read_bytes() == b"GGUF-one-two"
    assert not part_of(file).exists()


def test_a_restarted_part_is_empty_and_hashes_anew(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    with PartFile(file, is_hashed=True) as part:
        part.append(b"wrong")
        part.restart()
        part.append(b"right")
        assert part.start(3) == b"rig"
        assert part.size == 5
        assert part.sha256() == hashlib.sha256(b"right").hexdigest()
        part.finish()
    assert file.read_bytes() == b"right"


def test_what_is_flushed_survives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    with PartFile(file, is_hashed=False) as part:
        part.append(b"GGUF")
        part.flush()
        assert part_of(file).read_bytes() == b"GGUF"
        assert part.sha256() is None


DATA = bytes(range(256)) * 10_000


def test_the_hash_of_a_file_and_of_one_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA[:1_500_000])
    running = hash_of(path)
    running.update(DATA[1_500_000:])

    assert running.hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert sha256_of(path) == hashlib.sha256(DATA[:1_500_000]).hexdigest()
