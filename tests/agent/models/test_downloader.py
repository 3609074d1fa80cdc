"""Downloads against a server on loopback that cuts, refuses, changes its mind."""

import errno
import hashlib
import os
import threading
from pathlib import Path

import httpx2
import pytest

from arriero.agent.models.downloader import (
    INTERVAL,
    Downloader,
    PartFile,
    Progress,
    RedirectError,
    RemoteFile,
    ResponseFacts,
    hash_of,
    headers_for,
    next_url,
    refused,
    sha256_of,
)
from arriero.agent.models.models_folder import ModelsFolder, Record, part_of
from arriero.agent.models.port import FetchError
from arriero.agent.models.retry_pauses import PAUSES
from tests.agent.models.file_server import FileServer, Served, model

DATA = model()
PATH = "/m.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Download:
    """One download of `PATH` after the other; pauses are noted instead of waited for."""

    def __init__(self, folder: ModelsFolder, server: FileServer) -> None:
        self.folder = folder
        self.server = server
        self.pauses: list[float] = []
        self.told: list[int] = []

    @property
    def file(self) -> Path:
        return self.folder.web_file(self.server.url + PATH, "m.gguf")

    def run(self, *, sha256: str | None = None, size: int | None = None) -> bytes:
        remote = RemoteFile(
            url=self.server.url + PATH, called="m", file=self.file, sha256=sha256, size=size
        )
        clock = iter(range(10**9))
        progress = Progress(lambda _file, here, _total: self.told.append(here), lambda: next(clock))
        with httpx2.Client() as client:
            sleep = self.pauses.append
            downloader = Downloader(self.folder, client, progress, sleep, jitter=lambda: 0.0)
            downloader.download(remote)
        return self.file.read_bytes()

    def fails(self, *, sha256: str | None = None, size: int | None = None) -> FetchError:
        with pytest.raises(FetchError) as caught:
            self.run(sha256=sha256, size=size)
        assert not self.file.exists()
        return caught.value

    def part(self) -> bytes:
        return part_of(self.file).read_bytes()


@pytest.fixture
def download(folder: ModelsFolder, server: FileServer) -> Download:
    return Download(folder, server)


def test_a_file_arrives_with_progress_and_a_checksum(download: Download) -> None:
    download.server.serve(PATH, Served(DATA))

    assert download.run(sha256=sha256(DATA)) == DATA
    assert download.told == sorted(download.told)
    assert download.told[-1] == len(DATA)
    assert download.folder.record(download.file).sha256 == sha256(DATA)


def test_a_connection_cut_three_times_ends_with_the_right_bytes(download: Download) -> None:
    download.server.serve(PATH, Served(DATA, cuts=[70_000, 1, 60_000]))

    assert download.run(sha256=sha256(DATA)) == DATA
    assert download.server.starts(PATH) == [None, 70_000, 70_001, 130_001]
    assert download.pauses == [PAUSES[0]] * 3


def test_a_later_download_goes_on_where_an_earlier_one_gave_up(download: Download) -> None:
    download.server.serve(PATH, Served(DATA, cuts=[90_000] + [0] * len(PAUSES)))
    error = download.fails()

    assert error.code == "unreachable"
    assert download.part() == DATA[:90_000]
    assert download.run() == DATA
    assert download.server.starts(PATH)[-1] == 90_000


def test_a_file_that_changed_meanwhile_begins_anew(download: Download) -> None:
    download.server.serve(PATH, Served(DATA, cuts=[90_000] + [0] * len(PAUSES)))
    download.fails()
    other = model(len(DATA), seed=2)
    download.server.serve(PATH, Served(other, etag='"v2"'))

    assert download.run() == other


def test_without_an_etag_only_a_checksum_lets_it_go_on(download: Download) -> None:
    for wanted, start in ((None, None), (sha256(DATA), 90_000)):
        cuts = [90_000] + [0] * len(PAUSES)
        download.server.serve(PATH, Served(DATA, etag=None, cuts=cuts))
        download.fails(sha256=wanted)
        download.server.asked.clear()
        assert download.run(sha256=wanted) == DATA
        assert download.server.starts(PATH) == [start]
        download.file.unlink()


def test_a_server_without_ranges_sends_it_all_again(download: Download) -> None:
    download.server.serve(PATH, Served(DATA, cuts=[90_000], has_ranges=False))
    assert download.run(sha256=sha256(DATA)) == DATA


def test_a_part_that_rotted_is_dropped_and_loaded_again(download: Download) -> None:
    part_of(download.file).parent.mkdir(parents=True)
    part_of(download.file).write_bytes(b"GGUF" + b"?" * 1000)
    download.folder.write_record(download.file, Record(validator='"v1"', total=len(DATA)))
    download.server.serve(PATH, Served(DATA))

    assert download.run(sha256=sha256(DATA)) == DATA
    assert download.server.starts(PATH) == [1004, None]


def test_a_part_that_is_whole_already_needs_no_request(download: Download) -> None:
    part_of(download.file).parent.mkdir(parents=True)
    part_of(download.file).write_bytes(DATA)

    assert download.run(sha256=sha256(DATA), size=len(DATA)) == DATA
    assert download.server.asked == []


def test_a_wrong_checksum_is_told_and_nothing_stays(download: Download) -> None:
    download.server.serve(PATH, Served(DATA))
    error = download.fails(sha256="0" * 64)

    assert error.code == "wrong_checksum"
    assert sha256(DATA) in error.message
    assert download.part() == b""


def test_another_size_than_promised_is_torn(download: Download) -> None:
    download.server.serve(PATH, Served(DATA))
    error = download.fails(size=len(DATA) + 1)
    assert error.code == "torn"


def test_a_page_in_place_of_a_model_is_told_at_its_first_bytes(download: Download) -> None:
    page = b"<html>" + b"sign in " * 10**6
    held = threading.Event()
    download.server.serve(PATH, Served(page, held=held, held_after=1000))
    error = download.fails()

    assert error.code == "not_a_gguf"
    assert "<html>" in error.message
    assert not held.is_set()


def test_a_short_page_is_no_model_either(download: Download) -> None:
    download.server.serve(PATH, Served(b"no"))
    assert download.fails().code == "not_a_gguf"


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (403, "denied")])
def test_a_refusal_is_told_at_once(download: Download, status: int, code: str) -> None:
    download.server.serve(PATH, Served(DATA, statuses=[status]))
    assert download.fails().code == code
    assert download.pauses == []


def test_a_busy_server_is_asked_again_when_it_says(download: Download) -> None:
    headers = {"retry-after": "7"}
    download.server.serve(PATH, Served(DATA, statuses=[503, 429], headers=headers))
    assert download.run() == DATA
    assert download.pauses == [7, 7]


def test_a_server_that_is_gone_is_unreachable_after_some_attempts(download: Download) -> None:
    download.server.close()
    error = download.fails()

    assert error.code == "unreachable"
    assert download.pauses == list(PAUSES)


def test_redirects_are_followed_within_a_bound(download: Download) -> None:
    target = download.server.serve("/there", Served(DATA))
    download.server.serve(PATH, Served(location=target))
    assert download.run() == DATA

    download.file.unlink()
    download.server.serve(PATH, Served(location=PATH))
    download.server.asked.clear()
    error = download.fails()
    assert error.code == "unreachable"
    assert "redirects" in error.message
    assert len(download.server.asked) == 11


def test_a_redirect_to_plain_http_elsewhere_is_refused(download: Download) -> None:
    download.server.serve(PATH, Served(location="http://203.0.113.1/m.gguf"))
    error = download.fails()
    assert error.code == "unreachable"
    assert "not https://" in error.message


def test_more_than_the_limit_is_refused_before_it_arrives(
    tmp_path: Path, server: FileServer
) -> None:
    folder = ModelsFolder(tmp_path / "models", limit=1000)
    folder.create()
    held = threading.Event()
    server.serve(PATH, Served(DATA, held=held, held_after=0))
    assert Download(folder, server).fails().code == "too_large"
    assert not held.is_set()


def test_a_disk_that_fills_up_keeps_what_has_arrived(
    download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full as far as `write` says; a real full disk is in the integration tests."""

    append = PartFile.append

    def full(part: PartFile, data: bytes) -> None:
        if part.size > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(part, data)

    download.server.serve(PATH, Served(DATA))
    monkeypatch.setattr(PartFile, "append", full)
    with pytest.raises(OSError, match="No space left"):
        download.run()
    monkeypatch.setattr(PartFile, "append", append)

    assert len(download.part()) > 100_000
    assert download.run() == DATA
    assert download.server.starts(PATH)[-1] is not None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_files_of_one_model_add_up() -> None:
    told: list[tuple[str, int, int | None]] = []
    clock = Clock()
    progress = Progress(lambda *one: told.append(one), clock)
    progress.expect(300)
    progress.arrived("a", 50)
    progress.whole(100)
    clock.now += INTERVAL
    progress.arrived("b", 150)

    assert told == [("a", 50, 300), ("b", 250, 300)]


def test_it_is_told_a_few_times_a_second_at_most() -> None:
    told: list[int] = []
    clock = Clock()
    progress = Progress(lambda _file, size, _total: told.append(size), clock)
    for size in range(1000):
        clock.now += INTERVAL / 100
        progress.arrived("a", size)
    assert len(told) in (10, 11)


def test_an_unknown_total_is_the_file_s_own() -> None:
    told: list[int | None] = []
    progress = Progress(lambda _file, _size, total: told.append(total), Clock())
    progress.arrived("a", 1, 70)
    assert told == [70]


WEB = RemoteFile(url="https://a/m.gguf?sig=secret", called="https://a/m.gguf", file=Path("m"))
HUB = RemoteFile(url="https://hub/m", called="hf://org/repo/m", file=Path("m"), is_on_hub=True)


@pytest.mark.parametrize(
    ("remote", "status", "code"),
    [
        (HUB, 401, "gated"),
        (HUB, 403, "gated"),
        (HUB, 404, "not_found"),
        (WEB, 401, "denied"),
        (WEB, 403, "denied"),
        (WEB, 404, "not_found"),
        (WEB, 410, "not_found"),
        (WEB, 400, "unreachable"),
    ],
)
def test_a_status_has_a_code_and_a_hint(remote: RemoteFile, status: int, code: str) -> None:
    error = refused(remote, status)
    assert error.code == code
    assert str(status) in error.message
    assert error.hint
    assert "secret" not in error.message


def test_the_hint_for_a_gated_model_names_the_token() -> None:
    assert "HF_TOKEN" in refused(HUB, 401).hint


def test_a_whole_file() -> None:
    facts = ResponseFacts.of(200, {"content-length": "10", "etag": '"v1"'})
    assert facts == ResponseFacts(status=200, total=10, validator='"v1"')


def test_a_part_of_one() -> None:
    facts = ResponseFacts.of(206, {"content-range": "bytes 5-9/10", "content-length": "5"})
    assert (facts.first_byte, facts.total) == (5, 10)
    assert ResponseFacts.of(206, {"content-range": "bytes 5-9/*"}).total is None


def test_a_weak_etag_resumes_nothing_and_a_date_stands_in_for_none() -> None:
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert ResponseFacts.of(200, {"etag": 'W/"v1"', "last-modified": date}).validator is None
    assert ResponseFacts.of(200, {"last-modified": date}).validator == date


@pytest.mark.parametrize("junk", ["", "-1", "1e9", "9" * 40, "٣", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_junk_is_nothing(junk: str) -> None:
    headers = {"content-length": junk, "retry-after": junk, "content-range": junk}
    assert ResponseFacts.of(200, headers) == ResponseFacts(status=200)
    assert ResponseFacts.of(206, headers) == ResponseFacts(status=206)


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("https://a/x", "https://b/y?sig=1", "https://b/y?sig=1"),
        ("https://a/x", "/y", "https://a/y"),
        ("http://mirror:80/x", "http://mirror/y", "http://mirror/y"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:2/y", "http://127.0.0.1:2/y"),
        ("http://localhost/x", "http://[::1]/y", "http://[::1]/y"),
        ("http://127.0.0.1/x", "https://b/y", "https://b/y"),
        ("http://mirror:8080/x", "https://mirror/y", "https://mirror/y"),
    ],
)
def test_to_https_and_to_where_it_is_already(url: str, location: str, target: str) -> None:
    assert next_url(url, location) == target


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("https://a/x", "http://a/x"),
        ("https://a/x", "http://127.0.0.1:8060/api"),
        ("https://a/x", "file:///etc/passwd"),
        ("https://a/x", "http://[::1"),
        ("http://127.0.0.1/x", "http://10.0.0.1/y"),
        ("http://127.0.0.1/x", "ftp://127.0.0.1/y"),
        ("http://mirror/x", "https://b/y"),
        ("http://mirror/x", "http://b/y"),
        ("http://mirror/x", "http://mirror:8080/y"),
        ("http://mirror/x", "http://127.0.0.1/y"),
    ],
)
def test_nowhere_else(url: str, location: str) -> None:
    with pytest.raises(RedirectError):
        next_url(url, location)


def test_an_error_names_no_signature() -> None:
    with pytest.raises(RedirectError) as caught:
        next_url("https://a/x?token=secret", "http://b/y?sig=secret")
    assert "secret" not in str(caught.value)


def test_a_token_goes_to_no_other_host() -> None:
    headers = {"Authorization": "Bearer t", "range": "bytes=1-"}
    assert headers_for("https://a/x", "https://a:443/y", headers) == headers
    assert headers_for("https://a/x", "https://b/y", headers) == {"range": "bytes=1-"}
    assert headers_for("https://a/x", "https://a:8443/y", headers) == {"range": "bytes=1-"}


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


def test_the_hash_of_a_file_and_of_one_that_goes_on(tmp_path: Path) -> None:
    path, data = tmp_path / "file", bytes(range(256)) * 10_000
    path.write_bytes(data[:1_500_000])
    running = hash_of(path)
    running.update(data[1_500_000:])

    assert running.hexdigest() == hashlib.sha256(data).hexdigest()
    assert sha256_of(path) == hashlib.sha256(data[:1_500_000]).hexdigest()
