"""The fetching process' work, without the process; `test_fetcher` starts real ones."""

import errno
import hashlib
import io
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.models import fetch_process
from arriero.agent.models.fetch_process import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    broken,
    carry_out,
    fetched,
)
from arriero.agent.models.fetch_protocol import (
    FETCH_REPORTS,
    Fetched,
    FetchOrder,
    FetchReport,
    Headed,
    Refused,
)
from arriero.agent.models.file_lock import FileLock
from arriero.agent.models.models_folder import ModelsFolder, part_of
from arriero.agent.models.port import FetchError
from tests.agent.gguf.gguf_files import header
from tests.agent.models.file_server import FileServer, Served, model
from tests.agent.models.small_disk import fill
from tests.agent.models.small_hub import SmallHub
from tests.waiting import HANGS

DATA, OTHER = model(seed=1), model(seed=2)


def nothing() -> None:
    """Nobody is waited for."""


def carried_out(
    fetch: FetchOrder,
    until_leased: Callable[[], None] = nothing,
    until_told: Callable[[], None] = nothing,
) -> list[FetchReport]:
    reports = io.BytesIO()
    carry_out(fetch, reports, until_leased, until_told)
    return [FETCH_REPORTS.decode(line) for line in reports.getvalue().splitlines()]


def test_files_stay_leased_until_the_agent_has_its_own(tmp_path: Path, server: FileServer) -> None:
    url = server.serve("/m.gguf", Served(DATA))

    def evict() -> None:
        with pytest.raises(FetchError, match="in use"):
            ModelsFolder(tmp_path, limit=len(DATA)).make_room({tmp_path / "new": 1})

    last = carried_out(FetchOrder(source=url, root=tmp_path), evict)[-1]
    assert isinstance(last, Fetched)
    assert last.paths[0].read_bytes() == DATA
    assert last.kept == last.paths


def test_a_header_is_shown_before_anything_else_is_asked_for(
    tmp_path: Path, server: FileServer
) -> None:
    about = {"general.architecture": "llama", "llama.block_count": 2, "llama.scale": float("inf")}
    data = header(about, {"token_embd.weight": (8, 4)}) + bytes(2**18)
    url = server.serve("/m.gguf", Served(data))
    order = FetchOrder(source=url, root=tmp_path, shows_header=True)

    def told() -> None:
        ranges = [asked.headers.get("range") for asked in server.asked]
        assert ranges == ["bytes=0-131071"], "the rest is not even begun"
        assert list(tmp_path.rglob("*.part")) == []

    first, *_, last = carried_out(order, until_told=told)
    assert isinstance(first, Headed)
    assert (first.remote.bytes, first.remote.header.number("block_count")) == (len(data), 2)
    assert "llama.scale" not in first.remote.header.metadata
    assert isinstance(last, Fetched)
    assert last.paths[0].read_bytes() == data
    again = carried_out(order)
    assert not any(isinstance(each, Headed) for each in again), "it is here"


@pytest.mark.parametrize(
    "served", [Served(DATA), Served(DATA, has_ranges=False)], ids=["no header", "no ranges"]
)
def test_what_shows_no_header_is_fetched(
    tmp_path: Path, server: FileServer, served: Served
) -> None:
    url = server.serve("/m.gguf", served)
    reports = carried_out(FetchOrder(source=url, root=tmp_path, shows_header=True))
    assert isinstance(reports[-1], Fetched)
    assert not any(isinstance(each, Headed) for each in reports)


def test_a_header_that_is_too_long_for_a_report_is_not_shown(
    tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_process, "MAX_HEADED", 100)
    url = server.serve("/m.gguf", Served(header({"general.architecture": "llama"})))
    reports = carried_out(FetchOrder(source=url, root=tmp_path, shows_header=True))
    assert not any(isinstance(each, Headed) for each in reports)


def test_a_failure_is_the_last_report(tmp_path: Path) -> None:
    (report,) = carried_out(FetchOrder(source=f"file://{tmp_path}/no.gguf", root=tmp_path))
    assert isinstance(report, Refused)
    assert (report.code, report.traceback) == ("not_found", "")
    assert report.hint


def test_a_fault_of_ours_has_a_bounded_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("x" * 10 * MAX_TRACEBACK)

    monkeypatch.setattr(fetch_process, "fetched", broken)
    (report,) = carried_out(FetchOrder(source="file:///m.gguf", root=tmp_path))
    assert isinstance(report, Refused)
    assert report.code == "fetch_failed"
    assert len(report.traceback) == MAX_TRACEBACK
    assert len(report.message) == MAX_MESSAGE


def test_what_a_server_makes_us_say_is_bounded(tmp_path: Path, server: FileServer) -> None:
    location = "http://host/" + "x" * 10 * MAX_MESSAGE
    url = server.serve("/m.gguf", Served(location=location))
    (report,) = carried_out(FetchOrder(source=url, root=tmp_path))
    assert isinstance(report, Refused)
    assert len(report.message) == MAX_MESSAGE


@pytest.fixture
def office(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address by the name of another host, as a name server would have it."""
    resolve = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **options: Any) -> Any:
        return resolve(
            "127.0.0.1" if host in ("files.lan", "other.lan") else host, *rest, **options
        )

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return server.url.replace("127.0.0.1", "files.lan")


def test_a_host_without_tls_that_the_balancer_allows(
    tmp_path: Path, server: FileServer, office: str
) -> None:
    server.serve("/m.gguf", Served(DATA))
    source = f"{office}/m.gguf"
    last = carried_out(FetchOrder(source=source, root=tmp_path, http_hosts=("files.lan",)))[-1]
    assert isinstance(last, Fetched)
    assert last.paths[0].read_bytes() == DATA
    assert server.asked[-1].headers["host"].startswith("files.lan:")


@pytest.mark.parametrize("allowed", [(), ("other.lan",), ("files.lan:1",)])
def test_a_host_without_tls_that_it_does_not_allow_is_not_asked(
    tmp_path: Path, server: FileServer, office: str, allowed: tuple[str, ...]
) -> None:
    server.serve("/m.gguf", Served(DATA))
    order = FetchOrder(source=f"{office}/m.gguf", root=tmp_path, http_hosts=allowed)
    (report,) = carried_out(order)
    assert isinstance(report, Refused)
    assert report.code == "denied"
    assert "--model-source-http files.lan" in report.message
    assert server.asked == []


def test_a_host_without_tls_may_not_send_on_to_another(
    tmp_path: Path, server: FileServer, office: str
) -> None:
    target = server.serve("/other.gguf", Served(DATA)).replace("127.0.0.1", "other.lan")
    server.serve("/m.gguf", Served(location=target))
    hosts = ("files.lan", "other.lan")
    (report,) = carried_out(FetchOrder(source=f"{office}/m.gguf", root=tmp_path, http_hosts=hosts))
    assert isinstance(report, Refused)
    assert (report.code, len(server.asked)) == ("unreachable", 1)
    assert "other.lan" in report.message


FetchSource = Callable[..., Fetched]


@pytest.fixture
def fetch(folder: ModelsFolder) -> FetchSource:
    """Fetches, and lets the leases go."""

    def run(source: str, sha256: str | None = None) -> Fetched:
        with fetched(source, sha256, folder, report=no_progress, sleep=no_pause) as found:
            return found

    return run


def no_progress(_file: str, _size: int, _total: int | None) -> None:
    """Not looked at."""


def no_pause(_seconds: float) -> None:
    """Nobody waits."""


def test_a_web_file_is_downloaded_once(fetch: FetchSource, server: FileServer) -> None:
    url = server.serve("/m.gguf", Served(DATA))
    first, second = fetch(url), fetch(url)

    assert first == second
    assert first.paths[0].read_bytes() == DATA
    assert first.bytes == len(DATA)
    assert len(server.asked) == 1


def test_a_hub_model_is_downloaded_under_its_name(fetch: FetchSource, hub: SmallHub) -> None:
    names = [f"M-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    hub.publish("org/repo", {names[0]: DATA, names[1]: OTHER})
    found = fetch("hf://org/repo:Q8_0")

    assert [path.name for path in found.paths] == names
    assert [path.read_bytes() for path in found.paths] == [DATA, OTHER]
    assert found.bytes == len(DATA) + len(OTHER)
    assert fetch("hf://org/repo:Q8_0") == found


def test_a_cut_hub_download_goes_on(fetch: FetchSource, hub: SmallHub) -> None:
    hub.publish("org/repo", {"m.gguf": DATA})
    hub.content(DATA).cuts = [70_000, 50_000, 1]
    assert fetch("hf://org/repo/m.gguf").paths[0].read_bytes() == DATA


def test_a_hub_that_sends_other_bytes_than_it_promised_is_found_out(
    fetch: FetchSource, hub: SmallHub
) -> None:
    hub.publish("org/repo", {"m.gguf": DATA})
    hub.content(DATA).data = OTHER
    with pytest.raises(FetchError) as caught:
        fetch("hf://org/repo/m.gguf")
    assert caught.value.code == "wrong_checksum"


ABOVE = "../../../../../away"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c" * 40, ABOVE),
        ("c" * 40, ".."),
        ("c" * 40, "{tmp}/away"),
        (hashlib.sha256(DATA).hexdigest(), ABOVE),
        (hashlib.sha256(DATA).hexdigest(), "{tmp}/away"),
        (hashlib.sha256(DATA).hexdigest(), "x.part"),
        ("m-Q8_0.gguf", f"{ABOVE}-Q8_0.gguf"),
        ("m-Q8_0.gguf", "{tmp}/away-Q8_0.gguf"),
        ("m-Q8_0.gguf", "a/./m-Q8_0.gguf"),
        ("m-Q8_0-", f"{ABOVE}-Q8_0-"),
        ("m-Q8_0-", "m\\u0000-Q8_0-"),
    ],
)
def test_a_hub_names_no_file_outside_its_folder(
    tmp_path: Path, folder: ModelsFolder, hub: SmallHub, old: str, new: str
) -> None:
    split = {f"m-Q8_0-0000{n}-of-00002.gguf": DATA for n in (1, 2)}
    hub.publish("org/repo", {old: DATA} if old.endswith(".gguf") else split)
    said = new.replace("{tmp}", str(tmp_path))
    for served in hub.server.paths.values():
        if served.headers.get("content-type") == "application/json":
            served.data = served.data.replace(old.encode(), said.encode())
    with pytest.raises(FetchError) as caught:
        fetch_once(folder, "hf://org/repo:Q8_0")

    assert caught.value.code == "denied"
    assert said[:100] in caught.value.message.replace("\\x00", "\\u0000")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_id_of_a_blob_in_git_is_a_name_too(
    tmp_path: Path, folder: ModelsFolder, hub: SmallHub
) -> None:
    hub.publish("org/repo", {"m.gguf": DATA})
    for served in hub.server.paths.values():
        served.data = served.data.replace(b'"lfs"', b'"none"').replace(b"b" * 40, ABOVE.encode())
    with pytest.raises(FetchError, match="the hub names"):
        fetch_once(folder, "hf://org/repo/m.gguf")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_called_snapshots_is_a_folder_like_others(
    fetch: FetchSource, hub: SmallHub
) -> None:
    hub.publish("org/repo", {"snapshots/dd/m.gguf": DATA})
    path = fetch("hf://org/repo/snapshots/dd/m.gguf").paths[0]
    assert path.parts[-5:] == ("snapshots", "c" * 40, "snapshots", "dd", "m.gguf")
    assert path.read_bytes() == DATA


def test_a_gated_file_asks_for_a_token(fetch: FetchSource, hub: SmallHub) -> None:
    hub.publish("org/repo", {"m.gguf": DATA})
    hub.refuse(f"/org/repo/resolve/{'c' * 40}/m.gguf", 403, "GatedRepo")
    with pytest.raises(FetchError) as caught:
        fetch("hf://org/repo/m.gguf")
    assert caught.value.code == "gated"
    assert "HF_TOKEN" in caught.value.hint


def test_files_are_leased_inside_the_block_and_only_there(
    folder: ModelsFolder, server: FileServer
) -> None:
    url = server.serve("/m.gguf", Served(DATA))
    tight = ModelsFolder(folder.root, limit=len(DATA))
    leased = fetched(url, None, folder, report=no_progress)
    with leased as found, pytest.raises(FetchError, match="in use"):
        tight.make_room({tight.root / "new": 1})
    tight.make_room({tight.root / "new": 1})
    assert not found.paths[0].exists()


def test_a_second_fetch_waits_for_the_first_and_tells_its_progress(
    folder: ModelsFolder, server: FileServer
) -> None:
    held = threading.Event()
    url = server.serve("/m.gguf", Served(DATA, held=held, held_after=50_000))
    first = threading.Thread(target=lambda: fetch_once(folder, url))
    first.start()
    assert server.is_holding.wait(HANGS)
    told: list[tuple[int, int | None]] = []

    def look(_seconds: float) -> None:
        held.set()

    def report(_file: str, size: int, total: int | None) -> None:
        told.append((size, total))

    with fetched(url, None, folder, report=report, sleep=look) as found:
        assert found.paths[0].read_bytes() == DATA
    first.join(HANGS)

    assert told[0][1] == len(DATA)
    assert len(server.asked) == 1


def fetch_once(folder: ModelsFolder, url: str) -> None:
    with fetched(url, None, folder, report=no_progress, sleep=no_pause):
        pass


def test_another_checksum_replaces_a_file_only_by_the_right_one(
    fetch: FetchSource, server: FileServer
) -> None:
    url = server.serve("/m.gguf", Served(DATA))
    path = fetch(url).paths[0]
    assert fetch(url, hashlib.sha256(DATA).hexdigest()).paths[0] == path
    assert len(server.asked) == 1

    with pytest.raises(FetchError) as caught:
        fetch(url, "0" * 64)
    assert caught.value.code == "wrong_checksum"
    assert path.read_bytes() == DATA

    server.serve("/m.gguf", Served(OTHER, etag='"v2"'))
    assert fetch(url, hashlib.sha256(OTHER).hexdigest()).paths[0].read_bytes() == OTHER


def test_a_models_larger_than_the_limit_is_refused_before_any_of_it_comes(
    tmp_path: Path, hub: SmallHub
) -> None:
    hub.publish("org/repo", {"m.gguf": DATA})
    folder = ModelsFolder(tmp_path / "small", limit=1000)
    with pytest.raises(FetchError) as caught:
        fetch_once(folder, "hf://org/repo/m.gguf")
    assert caught.value.code == "too_large"
    assert not [asked for asked in hub.server.asked if "resolve" in asked.path]


def test_an_unused_model_is_evicted_for_a_new_one(tmp_path: Path, server: FileServer) -> None:
    folder = ModelsFolder(tmp_path / "models", limit=len(DATA) + 1000)
    urls = [server.serve(f"/{n}.gguf", Served(model(seed=n))) for n in (1, 2)]
    for url in urls:
        fetch_once(folder, url)
    assert [file.name.rpartition("/")[2] for file in folder.stored()] == ["2.gguf"]


def test_an_error_of_the_system_is_typed(tmp_path: Path, server: FileServer) -> None:
    (tmp_path / "file").touch()
    url = server.serve("/m.gguf", Served(DATA))
    with pytest.raises(FetchError) as caught:
        fetch_once(ModelsFolder(tmp_path / "file" / "models"), url)
    assert caught.value.code == "not_found"
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOTDIR

    with pytest.raises(FetchError) as caught:
        fetch_once(ModelsFolder(tmp_path), f"file://{tmp_path}/no.gguf")
    assert caught.value.code == "not_found"


def test_after_a_failure_no_lock_is_held(folder: ModelsFolder, server: FileServer) -> None:
    url = server.serve("/m.gguf", Served(DATA, statuses=[404]))
    with pytest.raises(FetchError):
        fetch_once(folder, url)
    with ExitStack() as held:
        for lock in (folder.root / "locks").iterdir():
            alone = FileLock.try_exclusive(lock)
            assert alone is not None
            held.enter_context(alone)


def test_a_partial_file_can_be_evicted(tmp_path: Path, server: FileServer) -> None:
    folder = ModelsFolder(tmp_path / "models", limit=len(DATA) + 1000)
    served = Served(DATA, cuts=[100_000] + [0] * 20)
    url = server.serve("/m.gguf", served)
    with pytest.raises(FetchError):
        fetch_once(folder, url)
    (stored,) = folder.stored()
    assert stored.name.endswith("m.gguf.part")
    fetch_once(folder, server.serve("/other.gguf", Served(OTHER)))
    assert not part_of(folder.root / stored.name.removesuffix(".part")).exists()


LARGE = model(2_000_000)


def test_a_file_larger_than_a_real_disk_is_refused_before_it_comes(
    disk: Path, server: FileServer
) -> None:
    held = threading.Event()
    url = server.serve("/m.gguf", Served(model(4_000_000), held=held))
    with pytest.raises(FetchError) as caught:
        fetch_once(ModelsFolder(disk / "models"), url)
    assert caught.value.code == "disk_full"
    assert "--models-limit" in caught.value.hint
    assert not held.is_set()


def test_a_real_disk_that_others_fill_up_is_typed_and_mended(
    disk: Path, server: FileServer
) -> None:
    held = threading.Event()
    served = Served(LARGE, held=held, held_after=1_000_000)
    url = server.serve("/m.gguf", served)
    folder = ModelsFolder(disk / "models")
    failures: list[FetchError] = []

    def fails() -> None:
        try:
            fetch_once(folder, url)
        except FetchError as error:
            failures.append(error)

    fetching = threading.Thread(target=fails)
    fetching.start()
    assert server.is_holding.wait(HANGS)
    wait_for_a_part(folder, url)
    filler = fill(disk)
    held.set()
    fetching.join(HANGS)

    assert [error.code for error in failures] == ["disk_full"]
    assert isinstance(failures[0].__cause__, OSError)
    assert failures[0].__cause__.errno == errno.ENOSPC
    filler.unlink()
    with fetched(url, None, folder, report=no_progress) as found:
        assert found.paths[0].read_bytes() == LARGE
    assert server.starts("/m.gguf")[-1] is not None


def wait_for_a_part(folder: ModelsFolder, url: str) -> None:
    """Until some of the file is on the disk."""
    part = part_of(folder.web_file(url, "m.gguf"))
    deadline = time.monotonic() + HANGS
    while not part.exists() or part.stat().st_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("disk", ["ro"], indirect=True)
def test_a_real_folder_that_nobody_may_write_is_denied(disk: Path, server: FileServer) -> None:
    with pytest.raises(FetchError) as caught:
        fetch_once(ModelsFolder(disk / "models"), server.serve("/m.gguf", Served(DATA)))
    assert caught.value.code == "denied"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EFBIG, "too_large"),
        (errno.EACCES, "denied"),
        (errno.EROFS, "denied"),
        (errno.ENOENT, "not_found"),
        (errno.EIO, "fetch_failed"),
    ],
)
def test_an_error_of_the_system_has_a_code_and_names_the_file(number: int, code: str) -> None:
    error = broken(OSError(number, "said so", "/models/m.gguf"), Path("/models"))
    assert error.code == code
    assert error.message == "/models/m.gguf: said so"


def test_an_error_that_names_no_file_names_the_folder() -> None:
    assert broken(OSError(errno.ENOSPC, "full"), Path("/models")).message == "/models: full"
