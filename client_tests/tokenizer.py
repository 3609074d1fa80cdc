"""The demo model's tokenizer as benchmarks and evaluations load it: from a folder."""

import json
import shutil
from pathlib import Path

from client_tests.program import ROOT

NAMES = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|endoftext|>",
    "eos_token": "<|im_end|>",
}


def tokenizer_in(folder: Path) -> str:
    """Writes the tokenizer into a folder of its own below `folder`; returns where it is."""
    here = folder / "tokenizer"
    here.mkdir()
    shutil.copy(ROOT / "demo" / "tokenizer.json", here)
    (here / "tokenizer_config.json").write_text(json.dumps(NAMES))
    return str(here)
