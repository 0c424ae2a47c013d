# The set-up: one virtual environment, exact pins, the embedded model. It runs before each target and costs nothing
# when the requirement files have not changed. PYTHON makes the environment; afterwards the environment's own is used.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev browser run test lint format

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup:  ## Make the environment that the app needs
	@$(PYTHON) scripts/environment.py --venv $(VENV)

setup-dev:  ## The same with the tests' and the linters' packages
	@$(PYTHON) scripts/environment.py --venv $(VENV) --dev

browser: setup-dev  ## Find a Chromium for the browser tests, or install one
	@$(BIN)/python scripts/browser.py

run: setup  ## Start the app on http://127.0.0.1:8501 (ARGS go to streamlit)
	$(BIN)/python scripts/serve.py $(ARGS)

test: browser  ## Run every test, in the browser too (ARGS go to pytest)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: setup-dev  ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup-dev  ## Mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
