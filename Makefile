.PHONY: help install programs demo dist release-check test style types compiled mutants agent-tests other-tests daemon-tests test-clients test-suites vulkan-tests check search format bench bench-setup bench-peer bench-soak bench-chaos

python := .venv/bin/python
# How many processes share the tests with real daemons, a file at a time. Half of their time is
# waiting, so four leave a core to the tests of the parts.
jobs := 4
each_file := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# What a run has compiled serves the next one.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make demo    a balancer and two agents on the demo model; asks a question (ONCE=1: then stops);"
	@echo "             MODEL=smollm2 or gemma3-270m: a real model, which is fetched once"
	@echo "make test    everything: format, lint, types, tests, the real daemons"
	@echo "make test-clients  programs of others (docs/clients.md) against the real daemons; installs them"
	@echo "make test-suites   suites of others against the real daemons; installs them"
	@echo "make vulkan-tests  an agent on a Vulkan device that the CPU is; installs and builds what that needs"
	@echo "make check   format, lint, types and the tests of the parts, in seconds"
	@echo "make search  the tests of the parts with examples drawn anew, to look for what fails"
	@echo "make mutants plants faults in the code, and says which of them no test sees (N=20, SINCE=commit)"
	@echo "make format  formats the code"
	@echo "make bench   continuous batching against static; a table, and JSON in bench/results"
	@echo "make bench-setup  once: models and llama.cpp's own server for the next two, in a cache folder"
	@echo "make bench-peer   against llama-server"
	@echo "make bench-soak   memory over 10,000 requests"
	@echo "make dist    wheels of Arriero and of its engine for hosts without a compiler, in dist/"
	@echo "make release-check  from a clean tag to what would be uploaded (REHEARSE=1: without a tag)"
	@echo "make bench-chaos  faults of all kinds for ten minutes, drawn from a seed"

install:
	@scripts/install

demo:
	@scripts/install run
	@$(python) -m demo.run $(if $(ONCE),--once) $(if $(MODEL),--model $(MODEL))

style: install
	$(python) -m ruff format --check
	$(python) -m ruff check

types: install
	$(python) -m mypy

lint: style types

check: lint
	$(python) -m pytest -q tests

# Types and parts compute all the time, daemons wait a lot.
test: style
	@$(MAKE) --no-print-directory -j5 COMPILED=compiled \
		programs types agent-tests other-tests daemon-tests

# For root it says which packages it installs, else with what command. A test without its program
# fails for root, and is skipped for others.
programs:
	@scripts/install-program || true

# Rewrites the assertions of these tests once; otherwise each process of a first run does. What
# cannot be collected is told by the run.
compiled: install
	@$(python) -m pytest -q --collect-only integration_tests >/dev/null || true

# Threads of an engine that wait for each other leave the cores to other processes.
check search agent-tests other-tests daemon-tests: export OMP_WAIT_POLICY := passive

# Two halves, since finding a test costs as much as running one: workers would each find all.
agent-tests: install
	$(python) -m pytest -q tests/agent

other-tests: install
	$(python) -m pytest -q tests --ignore tests/agent

daemon-tests: install $(COMPILED)
	$(python) -m pytest -q -n $(jobs) $(each_file) integration_tests

test-clients: install
	@scripts/install-client >/dev/null
	$(python) -m pytest client_tests

test-suites: install
	$(python) -m pytest suite_tests

# Without the libraries the tests are skipped; here they are there, and a device that is missing fails
# them. Shaders are compiled when they are first used, some for minutes.
vulkan-tests: install
	@libraries=$$(nice scripts/install-vulkan) && \
	LLAMA_CPP_LIB_PATH=$$libraries GGML_VK_VISIBLE_DEVICES=0 LP_NUM_THREADS=1 OMP_WAIT_POLICY=passive \
	$(python) -m pytest -q --timeout 1800 integration_tests/test_vulkan.py

release-check: install
	@$(python) -m pip install --quiet -c constraints.txt -e '.[release]'
	@$(python) -m release.check $(if $(REHEARSE),--rehearse) $(if $(ENGINE),--engine)

dist: install
	@$(python) -m pip install --quiet -c constraints.txt -e '.[release]'
	@nice $(python) -m release.dist $(if $(BACKEND),--backend $(BACKEND))

# N: how many faults; SINCE: only in lines that changed since this commit.
mutants: install
	$(python) -m tests.mutants --number $(or $(N),20) $(if $(SINCE),--since $(SINCE))

search: install
	$(python) -m pytest -q tests --hypothesis-profile searching
	FUZZ_EXAMPLES=500 $(python) -m pytest -q integration_tests/nobody_else_notices/test_fuzzing.py
	FUZZ_FILES=400 $(python) -m pytest -q integration_tests/nobody_else_notices/test_mutated_files.py

format: install
	$(python) -m ruff format
	$(python) -m ruff check --fix

bench: install
	$(python) -m bench.concurrency

bench-setup: install
	$(python) -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(python) -m bench.make_model
	$(python) -m bench.peer

bench-peer: install
	$(python) -m bench.against_llama_server

bench-soak: install
	$(python) -m bench.soak

bench-chaos: install
	$(python) -m bench.chaos
