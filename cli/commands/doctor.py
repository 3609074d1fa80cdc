"""`arriero doctor`: checks this host and the fleet, and says what to do."""

import argparse
import asyncio
import json
import os
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...shared.printable import printable
from ..arguments import EXIT_FAILED, Target, make_parser, run
from ..checks import (
    Finding,
    of_certificate,
    of_clock,
    of_engine,
    of_files,
    of_fleet,
    of_hosts,
    of_issues,
    of_memory,
    of_models,
    of_refusal,
    of_requests,
)
from ..output import console, print_json

if TYPE_CHECKING:
    from ...client import Client

_PROBE = "arriero.agent.probe"
"""The program that writes the devices of this host as JSON."""


def main(argv: Sequence[str] | None = None) -> int:
    """Check this host and the fleet, and say what to do."""
    return run(build_parser(), argv, _doctor)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    return make_parser("doctor", main.__doc__ or "")


async def _doctor(arguments: argparse.Namespace, target: Target) -> int | None:
    from ...client import Retries

    findings = list(_of_host())
    never = Retries(limit=0)
    async with target.client(retries=never) as client:
        findings += await _of_balancer(client, target)
    for address in dict.fromkeys((target.url, target.management)):
        findings += await _of_certificate(address, target.tls_ca)
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return EXIT_FAILED if any(finding.verdict == "bad" for finding in findings) else None


def _of_host() -> Iterator[Finding]:
    yield of_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield of_memory(_free_memory())
    is_installed = find_spec("llama_cpp") is not None
    yield from of_engine(is_installed, _probe() if is_installed else None)


async def _of_balancer(client: "Client", target: Target) -> list[Finding]:
    from ...client import ArrieroError

    findings: list[Finding] = []
    readiness = None
    try:
        readiness, date = await client.readiness(), await client.date()
        findings.append(Finding("good", f"the inference port answers at {target.url}"))
        if date:
            findings.append(of_clock(time.time() - parsedate_to_datetime(date).timestamp()))
    except ArrieroError as error:
        findings.append(of_refusal(error, "--url"))
    try:
        agents = await client.management.agents()
        findings.append(Finding("good", f"the management port answers at {target.management}"))
        findings += of_issues("the balancer", await client.management.about())
        if readiness is not None:
            findings += of_fleet(readiness, agents, version("arriero"), target.management)
        findings += of_hosts(await client.management.hosts(), time.time())
        if agents:  # else no model is served, and the missing agent is reported already
            findings += of_models(await client.management.models())
        for line in (await client.management.history(since="15m"))["lines"]:
            findings += of_requests(line["ended"])
    except ArrieroError as error:
        findings.append(of_refusal(error, "--management"))
    return findings


async def _of_certificate(address: str, tls_ca: str | None) -> list[Finding]:
    """Check the certificate at `address`; no finding without a trusted connection."""
    from ...client.http import CONNECT_TIMEOUT, tls_of

    parts = urlsplit(address)
    if parts.scheme != "https":
        return []
    tls = tls_of(tls_ca)
    dial = asyncio.open_connection(parts.hostname, parts.port or 443, ssl=tls)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await dial
    except (OSError, TimeoutError):
        return []
    end = writer.get_extra_info("peercert")["notAfter"]
    writer.transport.abort()
    return [of_certificate(address, ssl.cert_time_to_seconds(end) - time.time())]


def _free_memory() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _probe() -> dict[str, Any] | None:
    """List the devices in a separate process, because llama.cpp can crash while it lists them.

    Returns `None` on failure.
    """
    command = (sys.executable, "-m", _PROBE)
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, LookupError):
        return None
    return found


def _print(findings: list[Finding]) -> None:
    from rich.text import Text

    screen = console()
    for finding in findings:
        sign, style = _SIGNS[finding.verdict]
        screen.print(Text.assemble((f"{sign} ", style), printable(finding.what)))
        if finding.advice:
            screen.print(f"    {finding.advice}", style="dim")


_SIGNS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}
