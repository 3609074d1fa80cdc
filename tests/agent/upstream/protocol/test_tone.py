import wave
from base64 import b64decode
from io import BytesIO

from arriero.agent.engine.media.audio import seconds_of
from arriero.agent.upstream.protocol.dialects import OTHER
from arriero.agent.upstream.protocol.probes import first_probe, probes_of
from arriero.agent.upstream.protocol.tone import RATE, SECONDS, tone


def test_it_is_a_sound() -> None:
    with wave.open(BytesIO(b64decode(tone(), validate=True))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, RATE)
        frames = sound.readframes(sound.getnframes())
    assert len(frames) == 2 * RATE * SECONDS
    assert len(set(frames)) > 50, "not silence"


def test_agents_of_ours_take_it() -> None:
    assert seconds_of(b64decode(tone())) == SECONDS


def test_servers_get_it() -> None:
    [probe] = [each for each in probes_of("m", OTHER) if each.shows == "audio"]
    _, part = probe.body["messages"][0]["content"]
    assert part == {"type": "input_audio", "input_audio": {"data": tone(), "format": "wav"}}
    assert probe.path == first_probe("m").path
