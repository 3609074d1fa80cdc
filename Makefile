.PHONY: help install demo test check format bench

python := .venv/bin/python

help:
	@echo "make demo    a balancer and two agents on the demo model; asks a question (ONCE=1: then stops)"
	@echo "make test    everything: format, lint, types, tests, the real daemons"
	@echo "make check   format, lint, types and the tests of the parts, in seconds"
	@echo "make format  formats the code"
	@echo "make bench   the benchmarks; tables on the terminal, JSON in bench/results"

install:
	@scripts/install

demo: install
	@$(python) -m demo.run $(if $(ONCE),--once)

lint: install
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) -m mypy

check: lint
	$(python) -m pytest -q tests

test: lint
	$(python) -m pytest

format: install
	$(python) -m ruff format
	$(python) -m ruff check --fix

bench: install
	$(python) -m bench.concurrency
