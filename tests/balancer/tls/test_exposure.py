"""When the ports may be opened to others."""

import pytest

from arriero.balancer.tls.exposure import Protection, remedies, why_not
from arriero.shared.quantities import Address

LOCAL = {"--inference-addr": Address("127.0.0.1", 8061), "--management-addr": Address("::1", 8060)}
OPEN = LOCAL | {"--management-addr": Address("0.0.0.0", 8060)}


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("has_tls", [True, False])
def test_only_keys_and_tls_together_open_a_port(has_keys: bool, has_tls: bool) -> None:
    protection = Protection(has_keys=has_keys, has_tls=has_tls)
    assert why_not(LOCAL, protection) is None
    refusal = why_not(OPEN, protection)
    assert (refusal is None) == (has_keys and has_tls)
    if refusal is not None:
        assert refusal.startswith("--management-addr: other hosts reach 0.0.0.0:8060, and ")
        assert ("read" in refusal) == (not has_tls)
        assert ("anybody may use it" in refusal) == (not has_keys)


@pytest.mark.parametrize(("has_keys", "has_tls"), [(True, False), (False, True), (False, False)])
def test_the_commands_that_mend_it(has_keys: bool, has_tls: bool) -> None:
    told = remedies(Protection(has_keys=has_keys, has_tls=has_tls))
    assert ("arriero keys bootstrap --state URL" in told) == (not has_keys)
    assert ("balancer --tls-cert FILE --tls-key FILE" in told) == (not has_tls)
    assert "--insecure" in told
    assert "\n" not in told
