# make setup | demo | quick | test | docs | clean
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.installed
BROWSER := .venv/.browser
DOCS := .venv/.docs

.PHONY: setup demo quick test docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

$(BROWSER): $(STAMP)
	sh tests/install_chromium.sh
	touch $@

demo: setup
	$(BIN)/ldrf demo

quick: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --durations=15 --quick

test: setup $(BROWSER)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Beside the tests, pyright takes half the work of '--threads 2' before them: its threads read torch twice.
	$(BIN)/pyright & types=$$!; \
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --durations=15; tests=$$?; \
	wait $$types && exit $$tests

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf .venv runs build dist site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
