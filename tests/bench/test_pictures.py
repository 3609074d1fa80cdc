import base64

from bench.pictures import asking


def test_a_question_about_a_picture() -> None:
    [message] = asking("What?", b"png")["messages"]
    image, text = message["content"]
    assert image["image_url"]["url"].endswith(base64.b64encode(b"png").decode())
    assert text == {"type": "text", "text": "What?"}
    [message] = asking("What?", None)["messages"]
    assert message["content"] == [text]
