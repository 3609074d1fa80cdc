from arriero.agent.chat.families.families import family_named


def test_markers_of_calls_show_only_if_there_are_tools() -> None:
    llama = family_named("llama")
    assert "<|python_tag|>" in llama.markers(has_tools=True)
    assert llama.markers(has_tools=False) == ("<think>", "</think>")
    assert "[ARGS]" in family_named("mistral").markers(has_tools=True)
