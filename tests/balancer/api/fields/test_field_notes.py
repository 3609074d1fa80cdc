"""Names of ignored fields are bounded in number and length, and fit into a header."""

from arriero.balancer.api.fields.field_table import MAX_NAME, MAX_NAMES, OTHER, FieldNotes


def test_each_field_is_told_once() -> None:
    notes = FieldNotes()
    for _ in range(3):
        notes.add("messages[].name", is_known=True)
        notes.add("colour", is_known=False)
    assert notes.header == "messages[].name, colour"
    assert notes.labels == ("messages[].name", OTHER)


def test_nothing_is_ignored_at_first() -> None:
    assert (FieldNotes().header, FieldNotes().names) == ("", ())


def test_names_are_bounded_and_printable() -> None:
    notes = FieldNotes()
    notes.add("a\r\nSet-Cookie: x, é" + "b" * 1000, is_known=False)
    (name,) = notes.names
    assert name.startswith("a__Set-Cookie__x___b")
    assert len(name) == MAX_NAME
    for number in range(10_000):
        notes.add(f"f{number}", is_known=False)
    assert len(notes.names) == MAX_NAMES
    assert notes.header.endswith(", ...")
