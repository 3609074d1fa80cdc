"""Why an engine process refuses a change."""

from dataclasses import replace

from arriero.agent.change_refusals import (
    adapter_left_out,
    adapter_refused,
    forwarder_refused,
    template_refused,
)


def test_each_says_what_is_wrong() -> None:
    template = template_refused("line 3: no end")
    assert template.code == "chat_template" and "line 3: no end" in template.message
    adapter = adapter_refused("calm", "no such file")
    assert adapter.code == "adapter" and adapter.message == "adapter `calm`: no such file"
    assert adapter.adapter == "calm" and "leave the adapter out" in adapter.hint
    left_out = adapter_left_out("calm", "no such file")
    assert replace(left_out, hint=adapter.hint) == adapter
    assert "without this adapter" in left_out.hint
    assert "its upstream server" in forwarder_refused().message
