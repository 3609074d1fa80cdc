from pathlib import Path

import httpx2
import pytest

from arriero.agent.gguf.header import GgufHeader
from arriero.agent.models.downloader import RemoteFile
from arriero.agent.models.port import FetchError
from arriero.agent.models.remote_header import FIRST_PIECE, Budget, read_remote_header
from tests.agent.gguf.gguf_files import header
from tests.agent.models.file_server import FileServer, Served

PATH = "/m.gguf"
METADATA = {"general.architecture": "llama", "llama.block_count": 2}
WEIGHTS = bytes(3_000_000)


def read(
    server: FileServer, *, size: int | None = None, budget: Budget | None = None
) -> tuple[GgufHeader, int]:
    url = server.url + PATH
    remote = RemoteFile(url=url, called="m.gguf", file=Path("unused"), size=size)
    with httpx2.Client() as client:
        return read_remote_header(client, remote, budget or Budget())


def fails(
    server: FileServer, *, size: int | None = None, budget: Budget | None = None
) -> FetchError:
    with pytest.raises(FetchError) as caught:
        read(server, size=size, budget=budget)
    return caught.value


def ranges(server: FileServer) -> list[str]:
    return [asked.headers["range"] for asked in server.asked]


def test_a_short_header_takes_one_request_and_no_weights(server: FileServer) -> None:
    data = header(METADATA) + WEIGHTS
    server.serve(PATH, Served(data))
    found, total = read(server)
    assert (found.number("block_count"), total) == (2, len(data))
    assert ranges(server) == [f"bytes=0-{FIRST_PIECE - 1}"]


def test_a_long_vocabulary_is_asked_for_in_pieces(server: FileServer) -> None:
    words = [f"word {number}" for number in range(30_000)]
    data = header({"tokens": words, **METADATA})
    assert 3 * FIRST_PIECE < len(data) < 7 * FIRST_PIECE
    server.serve(PATH, Served(data + WEIGHTS))
    found, _ = read(server)
    assert (found.number("block_count"), found.lengths["tokens"]) == (2, 30_000)
    assert ranges(server) == [
        f"bytes={first * FIRST_PIECE}-{end * FIRST_PIECE - 1}"
        for first, end in ((0, 1), (1, 3), (3, 7))
    ]


def test_a_header_without_an_end_is_refused(server: FileServer) -> None:
    words = [f"word {number}" for number in range(30_000)]
    server.serve(PATH, Served(header({"tokens": words})))
    assert fails(server, budget=Budget(2 * FIRST_PIECE)).code == "too_large"
    assert ranges(server)[-1] == f"bytes={FIRST_PIECE}-{2 * FIRST_PIECE - 1}"


def test_the_headers_of_a_models_files_share_a_budget(server: FileServer) -> None:
    server.serve(PATH, Served(header(METADATA) + WEIGHTS))
    budget = Budget(FIRST_PIECE + 10)
    read(server, budget=budget)
    assert budget.left == 10
    assert fails(server, budget=budget).code == "too_large"


def test_a_server_without_ranges_is_not_read(server: FileServer) -> None:
    server.serve(PATH, Served(header(METADATA) + WEIGHTS, has_ranges=False))
    error = fails(server)
    assert error.code == "unreachable"
    assert "whole files only" in error.message


def test_what_is_no_model_is_told(server: FileServer) -> None:
    server.serve(PATH, Served(b"<html>" * 100))
    assert fails(server).code == "not_a_gguf"


def test_a_file_that_ends_within_its_header_is_told(server: FileServer) -> None:
    server.serve(PATH, Served(header(METADATA)[:-3]))
    assert fails(server).code == "not_a_gguf"


@pytest.mark.parametrize(
    ("status", "code"), [(404, "not_found"), (403, "denied"), (503, "unreachable")]
)
def test_a_refusal_is_told(server: FileServer, status: int, code: str) -> None:
    server.serve(PATH, Served(statuses=[status]))
    assert fails(server).code == code


def test_an_answer_that_is_cut_is_told(server: FileServer) -> None:
    server.serve(PATH, Served(header(METADATA) + WEIGHTS, piece_cuts=[10]))
    assert fails(server).code == "unreachable"


def test_another_size_than_the_hub_said_is_told(server: FileServer) -> None:
    server.serve(PATH, Served(header(METADATA) + WEIGHTS))
    assert "should have 7 bytes" in fails(server, size=7).message


def test_a_redirect_is_followed_within_the_rules(server: FileServer) -> None:
    server.serve("/there", Served(header(METADATA) + WEIGHTS))
    server.serve(PATH, Served(location="/there"))
    assert read(server)[0].number("block_count") == 2
    server.serve(PATH, Served(location="http://elsewhere.example/m.gguf"))
    assert "not https" in fails(server).message
