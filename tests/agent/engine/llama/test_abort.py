import signal
import subprocess
import sys

ABORT = """
import ctypes
import llama_cpp.llama_cpp as llama_cpp
from arriero.agent.engine.llama.abort import on_abort

on_abort(lambda line: print("first", line, flush=True))
on_abort(lambda line: print("heard", line, flush=True))
llama_cpp._lib.ggml_abort(b"/build/ggml/ggml.c", 3, b"GGML_ASSERT(%s) failed", b"a / b ==\\n c")
"""


def test_the_last_words_are_heard_before_the_process_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", ABORT], capture_output=True, text=True)
    assert ended.stdout == "heard ggml.c:3: GGML_ASSERT(a / b == c) failed\n"
    assert ended.stderr == ""
    assert ended.returncode == -signal.SIGABRT
