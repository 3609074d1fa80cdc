"""Certificates that change while connections come."""

import asyncio
import logging
import shutil
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from arriero.balancer.tls.certificates import (
    CHECK_INTERVAL,
    DAY,
    WARN_BEFORE,
    Certificates,
    issue,
    warning,
    watch_expiry,
)
from arriero.shared.messages import Issue
from arriero.shared.tls.key_pair import KeyPair, TlsFileError
from tests.authority import Authority, Files
from tests.waiting import HANGS


def test_nothing_is_said_while_it_is_far_and_then_once_a_day() -> None:
    left, said = 90 * DAY, []
    while left > 0:
        found = warning(left)
        said.append(found.message)
        left -= found.ask_again
    assert said[0] is None
    assert len(said) == 1 + 14
    assert said[1] == "the certificate expires in 14 days; renew the certificate"
    assert said[-1] == "the certificate expires in 1 day; renew the certificate"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (WARN_BEFORE, "in 14 days"),
        (DAY * 1.5, "in 1 day;"),
        (3600, "in less than a day"),
        (0, "has expired"),
        (-5 * DAY, "has expired"),
    ],
)
def test_the_words(left: float, words: str) -> None:
    found = warning(left)
    assert found.message is not None and words in found.message
    assert 0 < found.ask_again <= DAY


def test_the_issue_says_what_to_do() -> None:
    assert issue(90 * DAY) is None
    assert issue(3 * DAY) == Issue(
        code="certificate_expires",
        message="the certificate expires in 3 days",
        hint="renew the certificate",
    )
    assert issue(-DAY) == Issue(
        code="certificate_expires",
        message="the certificate has expired, so clients refuse to connect",
        hint="renew the certificate",
    )


class Served:
    """Certificates from files that the test replaces, and a clock that it turns."""

    def __init__(self, folder: Path, *, with_agent_ca: bool = False) -> None:
        self.authority = Authority(folder)
        self.files = Files(folder / "served.pem", folder / "served.key")
        self.time = 100.0
        self.num_changes = 0
        self.install(self.authority.sign("first"))
        self.certificates = Certificates(
            KeyPair(self.files.cert, self.files.key),
            self.authority.ca if with_agent_ca else None,
            clock=lambda: self.time,
            on_change=self.changed,
        )

    def install(self, files: Files) -> None:
        for source, target in ((files.cert, self.files.cert), (files.key, self.files.key)):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    def changed(self) -> None:
        self.num_changes += 1

    def context(self, port: str = "inference") -> ssl.SSLContext:
        return self.certificates.by_port()[port]()


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_the_same_context_as_long_as_the_files_stay(served: Served) -> None:
    first = served.context()
    served.time += 10 * CHECK_INTERVAL
    assert served.context() is first is served.context("management")
    assert served.num_changes == 0


def test_new_files_are_seen_at_once_by_who_asks(served: Served) -> None:
    served.certificates.check()
    assert served.num_changes == 0
    first = served.context()
    served.install(served.authority.sign("second", lives=timedelta(days=200)))
    served.certificates.check()
    assert served.num_changes == 1
    assert served.context() is not first


def test_new_files_are_seen_by_the_next_connection_after_the_interval(served: Served) -> None:
    first = served.context()
    before = served.certificates.not_after
    served.install(served.authority.sign("second", lives=timedelta(days=200)))
    served.time += CHECK_INTERVAL / 2
    assert served.context() is first, "files are not looked at for every connection"
    served.time += CHECK_INTERVAL / 2
    assert served.context() is not first
    assert served.certificates.not_after > before
    assert served.num_changes == 1


def test_what_is_broken_is_told_once_and_the_old_one_stays(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.context()
    good = served.files.cert.read_text()
    for text in ("nonsense", None, served.authority.sign("other").cert.read_text()):
        caplog.clear()
        served.files.cert.unlink() if text is None else served.files.cert.write_text(text)
        for _ in range(3):
            served.time += CHECK_INTERVAL
            assert served.context() is first
        [record] = caplog.records
        assert record.levelno == logging.ERROR
        assert "the old one stays in use: --tls-" in record.getMessage()
    served.files.cert.write_text(good)
    served.time += CHECK_INTERVAL
    assert served.context() is not first


def test_only_the_management_port_asks_for_certificates(tmp_path: Path) -> None:
    served = Served(tmp_path, with_agent_ca=True)
    assert served.context("inference").verify_mode is ssl.CERT_NONE
    assert served.context("management").verify_mode is ssl.CERT_OPTIONAL


def test_the_agents_authority_is_looked_at_as_well(tmp_path: Path) -> None:
    served = Served(tmp_path, with_agent_ca=True)
    first = served.context("management")
    other = Authority(tmp_path, "other")
    served.authority.ca.write_bytes(other.ca.read_bytes())
    served.time += CHECK_INTERVAL
    second = served.context("management")
    assert first.get_ca_certs() != second.get_ca_certs()


def test_how_long_it_lasts(tmp_path: Path) -> None:
    files = Authority(tmp_path).sign("a")
    pair = KeyPair(files.cert, files.key)
    end = Certificates(pair).not_after
    ending = Certificates(pair, now=lambda: end - 60)
    assert ending.seconds_left() == 60
    assert [each.code for each in ending.issues()] == ["certificate_expires"]
    assert Certificates(pair).issues() == ()
    with pytest.raises(TlsFileError, match="expired"):
        Certificates(pair, now=lambda: end)


class FakeCertificates(Certificates):
    """What is watched: days that a test sets."""

    def __init__(self, days: float) -> None:
        self.days = days
        self.num_asked = 0
        self.asked = asyncio.Event()

    def seconds_left(self) -> float:
        self.num_asked += 1
        self.asked.set()
        return self.days * DAY


async def test_it_warns_and_looks_again_when_there_is_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates = FakeCertificates(days=3)
    with caplog.at_level(logging.WARNING):
        watching = asyncio.create_task(watch_expiry(certificates))
        await certificates.asked.wait()
        certificates.asked.clear()
        certificates.days = 90
        await asyncio.sleep(0)
        certificates.on_change()
        async with asyncio.timeout(HANGS):
            await certificates.asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        watching.cancel()
    assert [each.getMessage() for each in caplog.records] == [
        "the certificate expires in 3 days; renew the certificate"
    ]
    assert certificates.num_asked == 2
