from arriero.client.sse import ServerSentEvent, SseParser


def parse(*lines: str) -> list[ServerSentEvent]:
    parser = SseParser()
    return [event for line in lines if (event := parser.line(line)) is not None]


def test_an_event_ends_with_an_empty_line() -> None:
    assert parse("event: delta", "id: 7", "data: {}") == []
    assert parse("event: delta", "id: 7", "data: {}", "") == [ServerSentEvent("delta", "{}", "7")]


def test_lines_of_data_are_joined_and_comments_passed_over() -> None:
    events = parse(": hello", "", "data: a", "retry: 5", "data:b", "", "data: c", "")
    assert events == [
        ServerSentEvent("message", "a\nb", None),
        ServerSentEvent("message", "c", None),
    ]


def test_the_id_stays_for_events_that_have_none() -> None:
    assert [event.id for event in parse("id: 1", "data: a", "", "data: b", "")] == ["1", "1"]
