# make figures   every figure and table of config/laptop.yaml, and the reports
# make report    the same: what is there already stays, so it only writes the reports again
# make test      the whole test suite
# make smoke     the same pipeline at toy size
# make bench     speed and memory, as ratios
# make faults    kills, full disks, damaged files, many of each: the table of docs/reliability.md
PYTHON ?= python3
CONFIG ?= config/laptop.yaml
BIN := .venv/bin
export CONFIG
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: figures report test smoke bench faults lint

figures report: .venv/ready
	@$(BIN)/python -m raptor.make "$$CONFIG"

smoke: .venv/ready
	$(MAKE) figures CONFIG=config/smoke.yaml

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder

bench: .venv/ready
	$(BIN)/python -m benchmarks

faults: .venv/ready
	RAPTOR_FAULTS=long RAPTOR_FAULTS_TABLE=docs/reliability.md $(BIN)/python -m pytest tests/faults

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
