"""Keys look as they should, and records never show a secret."""

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.access_key import (
    KEY_PATTERN,
    contains_key,
    digest_of,
    is_key,
    new_key,
)
from tests.balancer.access.builders import record, secret


@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_its_prefix_and_43_characters(random_bytes: bytes) -> None:
    key = new_key(random_bytes)
    assert re.fullmatch(r"ark_[A-Za-z0-9_-]{43}", key)
    assert is_key(key)
    assert base64.urlsafe_b64decode(key.removeprefix("ark_") + "=") == random_bytes


@pytest.mark.parametrize("num_bytes", [0, 16, 31, 33])
def test_fewer_random_bytes_make_no_key(num_bytes: int) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        new_key(bytes(num_bytes))


@pytest.mark.parametrize("text", ["", "ark_", "sk-abc", secret(1)[:-1], secret(1) + "x", "a" * 47])
def test_other_texts_are_no_keys(text: str) -> None:
    assert not is_key(text)


def test_the_digest_is_sha_256_of_the_whole_key() -> None:
    assert digest_of(secret(1)) == hashlib.sha256(secret(1).encode()).hexdigest()
    assert digest_of("\ud800") != digest_of("")  # headers may hold anything


def test_a_key_is_found_within_a_text() -> None:
    assert contains_key(f"/v1/models?key={secret(7)}&x")
    assert not contains_key("/v1/models?key=ark_short")
    assert re.search(KEY_PATTERN, secret(3))


def test_a_record_shows_no_digest() -> None:
    key = record("a", 1)
    assert key.digest not in repr(key)
    assert key.identity.digest == key.digest
    assert key.digest not in repr(key.identity)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"expires_at": 10.5}, None),
        ({"expires_at": 10.0}, "the key 'a' expired at 1970-01-01 00:00:10 UTC"),
        ({"revoked_at": 3.0, "expires_at": 4.0}, "the key 'a' was revoked"),
    ],
)
def test_what_is_wrong_with_it(fields: dict[str, float], problem: str | None) -> None:
    assert record("a", 1, **fields).problem(10.0) == problem


def test_a_later_key_of_the_same_name_owns_nothing_of_the_first() -> None:
    first, second = record("a", 1, created_at=1.0), record("a", 2, created_at=2.0)
    assert first.identity.owner != second.identity.owner
    rotated = record("a", 3, created_at=1.0, rotated_at=5.0)
    assert rotated.identity.owner == first.identity.owner
