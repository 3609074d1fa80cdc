import pytest

from arriero.agent.chat.parsing.reader import Reader
from arriero.agent.chat.parsing.tagged_calls import Tags, tagged_call
from arriero.agent.chat.parsing.tools import Tools
from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, parsed

FUNCTION = Tags(
    "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", has_lines=True
)
ARG = Tags("", "", "<key>", "</key>", "<value>", "</value>", "</call>")
CITED = Tags("", ">", "<p=", ">", "", "</p>", "</call>", quotes=("<<", ">>"))
TOOLS = Tools(
    [
        {
            "name": "f",
            "parameters": {
                "properties": {
                    "s": {"type": "string"},
                    "n": {"description": "Anything."},
                    "u": {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "integer"}]},
                    "o": {"enum": ["1", "true", 2]},
                },
                "$defs": {"text": {"type": "string"}},
            },
        }
    ]
)


def read(text: str, tags: Tags = FUNCTION) -> tuple[bool, list[Piece], str]:
    reader = Reader()
    return parsed(tagged_call(reader, tags, TOOLS), reader, text)


def parameter(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ('"quoted"\n\tand\n', '"\\"quoted\\"\\n\\tand\\n"'),
        ("12", '"12"'),
        ("a < b </param>", '"a < b </param>"'),
        ("é☃", '"é☃"'),
        ("", '""'),
    ],
)
def test_values_that_are_text(value: str, text: str) -> None:
    _, said, left = read(f"<function=f>\n{parameter('s', value)}</function>")
    assert (said, left) == (call("f", f'{{"s": {text}}}'), "")


@pytest.mark.parametrize(
    ("value", "text"),
    [("12", "12"), (" [1, 2] ", "[1, 2]"), ("True", "true"), ("None", "null"), ("x", '"x"')],
)
def test_values_that_may_be_json(value: str, text: str) -> None:
    _, said, _ = read(f"<function=f>{parameter('n', value)}</function>")
    assert said == call("f", f'{{"n": {text}}}')


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("u", "12", "12"),
        ("u", "true", '"true"'),
        ("u", "(1, 2)", '"(1, 2)"'),
        ("u", "x", '"x"'),
        ("o", "1", '"1"'),
        ("o", "true", '"true"'),
        ("o", "2", "2"),
        ("o", "3", "3"),
    ],
)
def test_values_that_may_be_both_are_what_fits(key: str, value: str, text: str) -> None:
    _, said, _ = read(f"<function=f>{parameter(key, value)}</function>")
    assert said == call("f", f'{{"{key}": {text}}}')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('["</parameter>", {"a": "</function>"}]', '["</parameter>", {"a": "</function>"}]'),
        ('"</parameter>"', '"</parameter>"'),
        ('\n ["</parameter>"]', '["</parameter>"]'),
        ('"no" more', '"\\"no\\" more"'),
        ("['a', \"it's\"]", '["a", "it\'s"]'),
    ],
)
def test_ends_may_stand_within_json(value: str, text: str) -> None:
    _, said, left = read(f"<function=f>{parameter('n', value)}</function>")
    assert (said, left) == (call("f", f'{{"n": {text}}}'), "")


def test_new_lines_may_be_the_values_own() -> None:
    _, said, _ = read("f\n<key>s</key>\n<value>\na\n</value></call>", ARG)
    assert said == call("f", '{"s": "\\na\\n"}')


def test_a_value_may_stand_in_quotes() -> None:
    _, said, left = read("f><p=s><<a</p>>></p><p=n><<[1]>></p><p=o>2</p></call>", CITED)
    assert (said, left) == (call("f", '{"s": "a</p>", "n": [1], "o": 2}'), "")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<function=f></function>", "{}"),
        ("<function=f><parameter=s>a<parameter=n>1</function>", '{"s": "a", "n": 1}'),
        ("<function=f><parameter=s>a\n</function>", '{"s": "a"}'),
        ("<function=f><parameter=s>a</parameter> junk", '{"s": "a"}'),
        ("<function=f><parameter=s>a", '{"s": "a'),
        ("<function=f><parameter=n>1", '{"n": '),
        ("<function=f><parameter=s", "{}"),
    ],
)
def test_calls_that_are_not_whole(text: str, arguments: str) -> None:
    is_call, said, _ = read(text)
    assert is_call
    if text.endswith("=s"):
        arguments = ""
    assert "".join(each for kind, each in said if kind == "tool_call") == arguments


def test_another_set_of_tags() -> None:
    text = "f\n<key>s</key>\n<value>a</value>\n<key>n</key><value>2</value></call>"
    assert read(text, ARG) == (True, call("f", '{"s": "a", "n": 2}'), "")
    assert read("f</call>", ARG) == (True, call("f", "{}"), "")


@pytest.mark.parametrize(
    "text", ["", "f", "<function=", "<function=>", "<function=f", "<function=f> and so on"]
)
def test_what_is_no_call_is_left(text: str) -> None:
    assert read(text) == (False, [], text)


def test_a_word_is_no_call() -> None:
    assert read("is used", ARG) == (False, [], "is used")


def test_a_key_may_say_what_its_value_is() -> None:
    tags = Tags(
        "",
        '" no="',
        '<arg name="',
        '">',
        "",
        "</arg>",
        "</call>",
        number_end='">',
        typed_key_ends=(('" text="yes">', True), ('" text="no">', False)),
    )
    _, said, left = read(
        'f" no="12"><arg name="a" text="yes">3</arg><arg name="b" text="no">3</arg>'
        '<arg name="s">3</arg><arg name="c">3</arg></call>',
        tags,
    )
    assert (said, left) == (call("f", '{"a": "3", "b": 3, "s": "3", "c": "3"}'), "")
    assert read('f" no="12<arg name="a">', tags)[0] is False
