"""Writes every generated page: `python -m docs.generate`."""

from .reference import ROOT, pages

for name, text in pages().items():
    (ROOT / name).write_text(text)
