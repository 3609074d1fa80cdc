"""Which addresses are public."""

import pytest

from arriero.balancer.api.links.addresses import is_public


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111"])
def test_public_addresses(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("192.0.2.1", "198.18.0.1", "203.0.113.9"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "ff0e::1"),
        *("2001:db8::1", "::ffff:1.1.1.1", "::ffff:127.0.0.1", "::1.1.1.1", "::ffff:0:1.1.1.1"),
        *("64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1"),
        *("", "localhost", "2130706433", "1.1.1.1.", "1.1.1"),
    ],
)
def test_others(text: str) -> None:
    assert not is_public(text)
