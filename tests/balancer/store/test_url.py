"""URLs of stores: what they say, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.store.url import StoreUrl, parse_store_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("memory://", StoreUrl("memory")),
        ("sqlite:///state.db", StoreUrl("sqlite", "state.db")),
        ("sqlite:////var/lib/state.db", StoreUrl("sqlite", "/var/lib/state.db")),
        ("sqlite:///a%20b.db", StoreUrl("sqlite", "a b.db")),
        (
            "postgresql://ana:p%40ss@db.example:6432/arriero?sslmode=verify-full",
            StoreUrl(
                "postgresql",
                user="ana",
                password="p@ss",
                host="db.example",
                port=6432,
                database="arriero",
                ssl_mode="verify-full",
            ),
        ),
        ("postgres://db/arriero", StoreUrl("postgresql", host="db", database="arriero")),
        (
            "postgresql:///arriero?host=/run/postgresql",
            StoreUrl("postgresql", host="/run/postgresql", database="arriero"),
        ),
    ],
)
def test_what_a_url_says(text: str, url: StoreUrl) -> None:
    assert parse_store_url(text) == url


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("", "must be memory://, sqlite:///FILE or postgresql://USER@HOST/DATABASE"),
        ("memory://x", "must be memory://"),
        ("mysql://x/y", "must be memory://"),
        ("sqlite://state.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///:memory:", "three slashes"),
        ("sqlite:///x?mode=ro", "three slashes"),
        ("postgresql://db", "must name a database"),
        ("postgresql://db/a/b", "must name a database"),
        ("postgresql://db:port/a", "port from 1 to 65535"),
        ("postgresql://db:99999/a", "port from 1 to 65535"),
        ("postgresql://[db/a", "must be memory://"),
        ("postgresql://db/a?ssl=on", "no parameter `ssl`, only host and sslmode"),
        ("postgresql://db/a?sslmode=maybe", "unknown sslmode; there are disable,"),
        ("sqlite:///a\nb", "must be memory://"),
        ("sqlite:///" + "a" * 5000, "must be memory://"),
    ],
)
def test_a_url_that_means_no_store_is_refused(text: str, right: str) -> None:
    with pytest.raises(ValueError, match=right.replace("/", "[/]")):
        parse_store_url(text)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=9))
def test_a_password_is_never_shown(password: str) -> None:
    quoted = "".join(f"%{ord(each):02x}" for each in password)
    url = parse_store_url(f"postgresql://ana:{quoted}@db:1/arriero")
    assert url.password == password
    assert str(url) == "postgresql://ana@db:1/arriero"


@pytest.mark.parametrize("text", ["memory://", "sqlite:///state.db", "sqlite:////a/b.db"])
def test_other_stores_are_shown_as_they_were_given(text: str) -> None:
    assert str(parse_store_url(text)) == text
