from arriero.agent.chat.families.call_syntax import JSON_CALLS
from arriero.agent.chat.families.families import family_named


def test_markers_of_calls_show_only_if_there_are_tools() -> None:
    llama = family_named("llama")
    assert "<|python_tag|>" in llama.markers(has_tools=True)
    assert llama.markers(has_tools=False) == ("<think>", "</think>")
    assert "[ARGS]" in family_named("mistral").markers(has_tools=True)


def test_calls_are_asked_for_in_json_where_the_own_notation_is_none_and_read_in_both() -> None:
    glm, kimi = family_named("glm"), family_named("kimi")
    told = glm.told("")
    assert told.syntax("") == JSON_CALLS
    assert told.calls == glm.calls
    assert told.bare
    assert kimi.told("") is kimi, "its own notation is JSON"
    assert glm.forced("") is glm
    plain = family_named("plain")
    assert plain.told("").syntax("") == plain.forced("").syntax("") == JSON_CALLS
