"""Hosts and origins, as headers have them."""

import pytest

from arriero.balancer.api.transport.hosts import AllowedHosts, checked_origin, checked_url
from arriero.shared.errors import Forbidden, ForbiddenHost

HOSTS = AllowedHosts(["gpu-box", "Arriero.Example", "other.example:8443"])
OWN = "127.0.0.1:8060"


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:8060", "10.1.2.3:80", "[::1]:8060", "[::1]", "localhost"),
        *("LOCALHOST:1", "gpu-box", "gpu-box:8060", "GPU-BOX", "gpu-box.", "arriero.example:443"),
        "other.example:8443",
    ],
)
def test_hosts_that_are_answered(host: str) -> None:
    HOSTS.check([host], [])


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8060", "", " ", "gpu-box.evil.example", "evil-gpu-box"),
        *("localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:8060@evil.example"),
        *("other.example", "other.example:80", "[::1", "::1", "evil/127.0.0.1", "gpu-box:port"),
        *("127.0.0.1:8060,evil.example", "xgpu-box", "gpu-boxx", "gpu-box:8060:1"),
    ],
)
def test_hosts_that_are_refused(host: str) -> None:
    with pytest.raises(ForbiddenHost):
        HOSTS.check([host], [])


def test_the_host_of_a_target_is_checked_as_well() -> None:
    HOSTS.check_target("127.0.0.1:8000")
    with pytest.raises(ForbiddenHost, match="the request's target"):
        HOSTS.check_target("evil.example:80")


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "evil.example"]])
def test_there_must_be_one_host(hosts: list[str]) -> None:
    with pytest.raises(ForbiddenHost, match=f"one `Host`, not {len(hosts)}"):
        HOSTS.check(hosts, [])


@pytest.mark.parametrize(
    "origin",
    [
        *("http://127.0.0.1:8060", "https://127.0.0.1:8060", "https://gpu-box"),
        *("https://arriero.example", "https://other.example:8443", "HTTP://ARRIERO.EXAMPLE"),
    ],
)
def test_origins_that_may_go_on(origin: str) -> None:
    HOSTS.check([OWN], [origin])


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "", "http://", "http://127.0.0.1", "http://["),
        *("http://evil-127.0.0.1:8060", "http://evil127.0.0.1:8060", "http://x.127.0.0.1:8060"),
        *(
            "http://localhost:3000",
            "http://10.0.0.1",
            "https://gpu-box:9999",
            "http://evil-gpu-box",
        ),
        *("http://evil.example://127.0.0.1:8060", "127.0.0.1:8060", "http://127.0.0.1:8060/"),
        "https://other.example",
    ],
)
def test_origins_that_are_refused(origin: str) -> None:
    """Also those that end, or begin, like the host that was asked."""
    with pytest.raises(Forbidden):
        HOSTS.check([OWN], [origin])


@pytest.mark.parametrize(
    ("host", "own", "foreign"),
    [
        # The port of a host without one is that of the page's scheme.
        ("gpu-box", "http://gpu-box", "http://gpu-box:443"),
        ("gpu-box", "https://gpu-box:443", "https://gpu-box:80"),
        ("gpu-box:443", "https://gpu-box", "http://gpu-box:80"),
        ("127.0.0.1:80", "http://127.0.0.1", "https://127.0.0.1"),
        ("127.0.0.1", "https://127.0.0.1", "http://127.0.0.1:8060"),
        ("127.0.0.1:8060", "http://127.0.0.1:8060", "http://127.0.0.1:8061"),
        # A host is one in whichever spelling; another name of this machine is another host.
        ("LocalHost:8060", "HTTP://localhost:8060", "http://127.0.0.1:8060"),
        ("localhost.:8060", "http://localhost:8060", "http://localhost"),
        ("localhost:8060", "http://localhost.:8060", "http://localhost..:8060"),
        ("[::1]:8060", "http://[0:0:0:0:0:0:0:1]:8060", "http://[::1]"),
        ("[0:0::1]:8060", "http://[::1]:8060", "http://[::2]:8060"),
        ("[::1]:8060", "http://[::1]:8060", "http://::1:8060"),
        # Other schemes have no pages here, even of this host.
        ("127.0.0.1:8060", "https://127.0.0.1:8060", "ftp://127.0.0.1:8060"),
        ("127.0.0.1:8060", "https://127.0.0.1:8060", "http://user@127.0.0.1:8060"),
        ("127.0.0.1:8060", "https://127.0.0.1:8060", "http://127.0.0.1:"),
    ],
)
def test_a_pages_origin_is_scheme_host_and_port(host: str, own: str, foreign: str) -> None:
    hosts = AllowedHosts(listening=["gpu-box", "127.0.0.1"])
    hosts.check([host], [own])
    with pytest.raises(Forbidden):
        hosts.check([host], [foreign])


@pytest.mark.parametrize("listening", ["127.0.0.1", "localhost", "gpu-box"])
def test_the_page_of_another_server_on_the_host_that_it_listens_on(listening: str) -> None:
    hosts = AllowedHosts(listening=[listening])
    hosts.check([f"{listening}:8060"], [f"http://{listening}:8060"])
    for origin in (f"http://{listening}", f"https://{listening}", f"http://{listening}:3000"):
        with pytest.raises(Forbidden):
            hosts.check([f"{listening}:8060"], [origin])


def test_over_tls_a_page_without_it_is_foreign() -> None:
    """Whoever is on the way could have made that page."""
    for host in (OWN, "gpu-box"):
        HOSTS.check([host], [f"https://{host}"], over_tls=True)
        with pytest.raises(Forbidden):
            HOSTS.check([host], [f"http://{host}"], over_tls=True)


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/70.0"}


def page(site: str, mode: str = "no-cors") -> dict[str, str]:
    return {**BROWSER, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}


@pytest.mark.parametrize(
    ("headers", "may_read", "may_act"),
    [
        ({}, True, True),
        ({"User-Agent": "curl/8.5.0"}, True, True),
        (page("same-origin"), True, True),
        (page("none", "navigate"), True, True),  # somebody typed it
        (page("cross-site"), False, False),
        (page("same-site"), False, False),  # another port of this host
        (page("cross-site", "navigate"), True, False),
        (page("same-site", "navigate"), True, False),
        ({**page("cross-site"), "Referer": f"http://{OWN}/"}, False, False),
        # Browsers that do not say where the page is, or not to hosts like this one.
        (BROWSER, True, False),
        ({**BROWSER, "Referer": "http://evil.example/page"}, True, False),
        ({"Referer": "http://evil.example/page"}, True, False),
        ({"Referer": "http://127.0.0.1/"}, True, False),
        ({"Referer": f"http://{OWN}.evil.example/"}, True, False),
        ({"Referer": ""}, True, False),
        ({**BROWSER, "Referer": f"http://{OWN}/page?x=http://evil.example/"}, True, True),
        # `check` has seen what has an origin.
        ({**page("cross-site", "cors"), "Origin": "https://chat.example"}, True, True),
    ],
)
def test_what_a_page_has_a_browser_ask_for(
    headers: dict[str, str], may_read: bool, may_act: bool
) -> None:
    for acts, may in ((False, may_read), (True, may_act)):
        try:
            AllowedHosts().check_fetch({"Host": OWN, **headers}, acts=acts)
            assert may
        except Forbidden:
            assert not may


def test_every_origin_counts() -> None:
    with pytest.raises(Forbidden):
        HOSTS.check([OWN], [f"http://{OWN}", "http://evil.example"])


@pytest.mark.parametrize("name", ["", "http://gpu-box", "gpu box", "gpu-box/", "*.example"])
def test_what_cannot_be_a_host(name: str) -> None:
    with pytest.raises(ValueError, match="must be a host"):
        AllowedHosts([name])


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (None, None),
        ("https://llm.example/", "https://llm.example"),
        ("http://10.0.0.1:8061", "http://10.0.0.1:8061"),
        ("https://[::1]:443/arriero/", "https://[::1]:443/arriero"),
    ],
)
def test_urls_that_clients_can_call(given: str | None, taken: str | None) -> None:
    assert checked_url(given) == taken


@pytest.mark.parametrize(
    "given", ["", "llm.example", "ftp://llm.example", "https://llm.example/'; rm -rf", "https://"]
)
def test_urls_that_they_cannot(given: str) -> None:
    with pytest.raises(ValueError, match="must be a URL such as https://"):
        checked_url(given)


ADMITTED = AllowedHosts(
    [],
    [
        *("https://chat.example", "http://localhost:*", "app://*", "null"),
        *("chrome-extension://abc", "https://TLS.example:443"),
    ],
)


@pytest.mark.parametrize(
    "origin",
    [
        *("https://chat.example", "https://CHAT.example", "http://localhost", "null"),
        *("http://localhost:3000", "app://obsidian.md", "app://-", "chrome-extension://abc"),
        *("https://chat.example:443", "https://chat.example.", "https://tls.example"),
    ],
)
def test_origins_that_an_operator_named(origin: str) -> None:
    assert ADMITTED.admits(origin)
    ADMITTED.check([OWN], [origin])


@pytest.mark.parametrize(
    "origin",
    [
        *("http://chat.example", "https://chat.example.evil", "https://xchat.example", ""),
        *("https://localhost:3000", "http://localhost:x", "http://localhost.evil:3000"),
        *("http://localhost:3000.evil", "app:", "app:///", "file://", "chrome-extension://abcd"),
        "https://chat.example:444",
    ],
)
def test_origins_that_no_operator_named(origin: str) -> None:
    assert not ADMITTED.admits(origin)
    with pytest.raises(Forbidden, match="--allowed-origin"):
        ADMITTED.check([OWN], [origin])


def test_no_origin_is_admitted_unasked() -> None:
    assert not AllowedHosts().admits("http://localhost:3000")
    assert AllowedHosts([], ["*"]).admits("http://localhost:3000")


@pytest.mark.parametrize(
    "origin", ["", "chat.example", "https://", "https://chat.example/", "https://*", "a*", "http:*"]
)
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match="must be an origin such as https://"):
        checked_origin(origin)
