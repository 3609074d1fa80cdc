"""Durations, sizes and addresses as people write them in settings."""

import math
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|)", re.ASCII)
_SIZES = {"": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for rest, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d{1,16}(?:\.\d{0,9})?)\s*([kmgt]i?b|)", re.ASCII)
_ADDRESS = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):(\d{1,5})", re.ASCII)

MAX_DURATION = 365 * 24 * 3600.0
"""Maximum duration in seconds; timers accept it without overflow."""

MAX_SIZE = 2**50
"""Maximum size in bytes; floats represent all sizes up to it exactly."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a listening socket. Port 0 takes any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this host can connect to the address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_unspecified(self) -> bool:
        """Return whether the address is unspecified (0.0.0.0 or ::).

        A server can listen on such an address, but a client cannot be told to connect to it.
        """
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_duration(value: object) -> float:
    """Return the seconds of `10`, `1.5`, `500ms`, `2m`, `1h` or `90d`. Raises `ValueError`."""
    found = _DURATION.fullmatch(str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else _plain_seconds(value)
    if not 0 <= seconds <= MAX_DURATION:
        raise ValueError("must be a duration of at most a year, such as 10, 500ms, 2m, 12h or 7d")
    return seconds


def _plain_seconds(value: object) -> float:
    """Return a float unchanged, else NaN, because a float's text may have an exponent."""
    return value if isinstance(value, float) else math.nan


def format_duration(seconds: float) -> str:
    """Format `seconds` as people write them: `500ms`, `1.5s`, `30s`, `2m`."""
    if 0 < seconds < 1:
        unit = "ms"
    else:
        unit = next((unit for unit in "hm" if seconds and seconds % _UNITS[unit] == 0), "s")
    return f"{seconds / _UNITS[unit]:.12g}{unit}"


def parse_size(value: object) -> int:
    """Return the bytes of `1000`, `500MB` or `1.5GiB`, in any case. Raises `ValueError`."""
    found = _SIZE.fullmatch(str(value).strip().lower())
    size = round(float(found[1]) * _SIZES[found[2]]) if found else MAX_SIZE + 1
    if size > MAX_SIZE:
        raise ValueError("must be a size in bytes, such as 1000000, 500MB or 10GiB")
    return size


def parse_address(value: object) -> Address:
    """Parse `host:port`; an empty host is the loopback address. Raises `ValueError`."""
    found = _ADDRESS.fullmatch(str(value).strip())
    if not found or int(found[2]) > 65535:
        raise ValueError("must be HOST:PORT such as 127.0.0.1:8060 (port 0 takes any free one)")
    return Address(found[1].strip("[]") or LOOPBACK, int(found[2]))


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""A duration in seconds."""

Size = Annotated[int, BeforeValidator(parse_size)]
"""A size in bytes."""
