# make figures   every figure and table of config/laptop.yaml, and the report
# make test      the whole test suite
# make smoke     the same pipeline at toy size
# make bench     speed and memory, as ratios
PYTHON ?= python3
CONFIG ?= config/laptop.yaml
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
EXPERIMENT = $(shell $(BIN)/python -c "from raptor.config.load import load_yaml; print(load_yaml('$(CONFIG)').experiment)")

.PHONY: figures test smoke bench lint clean-results

figures: .venv/ready
	@echo "raptor: $(CONFIG), all stages; about 15 minutes on 2 cores for the default."
	@echo "raptor: the first figure appears within 5 minutes under results/<experiment>/figures/."
	$(BIN)/snakemake --configfile $(CONFIG)
	$(BIN)/snakemake --configfile $(CONFIG) --report results/$(EXPERIMENT)/report.zip
	@echo "raptor: done. Figures, tables and report.zip are in results/$(EXPERIMENT)/"

smoke: .venv/ready
	$(MAKE) figures CONFIG=config/smoke.yaml

test: .venv/ready
	$(BIN)/python -m pytest

bench: .venv/ready
	$(BIN)/python -m benchmarks

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint

# One environment, from the lock, remade when the lock changes.
.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "raptor needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "raptor: making .venv from requirements.lock (a few minutes, mostly torch)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@
