# The same commands for people and for CI. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
VERL_VENV ?= .venv-verl
VERL_PIP := $(VERL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help setup check unit test demo bench bench-trl bench-trl-adapter credit-study fuzz fuzz-readers attack paper parity-alfworld speed-alfworld test-engines wheel-test docs lock clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

setup: $(VENV)/.installed  ## make the virtual environment and install the pinned packages

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
	  || { echo "bipace needs Python 3.10-3.13; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@date +%s > .install-started
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@expr $$(date +%s) - $$(cat .install-started) > $@ || true
	@rm -f .install-started

check: setup  ## format, lint, types, import contracts (under a minute)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	PYTHONPATH=src $(BIN)/lint-imports

unit: setup  ## the unit tests alone
	$(BIN)/pytest tests/unit -m "not slow" -n 2 --dist worksteal

test: setup  ## the whole test suite
	$(BIN)/ruff check .
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest -n 2 --dist worksteal --durations=15

demo: setup  ## teach the small actor TextCraft under BiPACE; ends with a table, a picture and the run folder
	$(BIN)/bipace demo --install-seconds $$(cat $(VENV)/.installed)

bench: setup  ## every benchmark of the repository; results as JSON in benchmarks/results
	for file in benchmarks/*.py; do OMP_NUM_THREADS=1 $(BIN)/python $$file || exit 1; done

credit-study: setup  ## every recipe's advantages against the exact truth of four small worlds; docs/results/credit.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/credit_study.py

STUDIES := textcraft-bipace textcraft-controls textcraft-decide textcraft-estimators textcraft-graphs textcraft-weights alfworld

paper: setup  ## the studies behind docs/results/paper.md, resumable, and their tables anew; hours, with the time left shown
	for study in $(STUDIES); do \
	  OMP_NUM_THREADS=1 $(BIN)/bipace study examples/studies/$$study.toml --out runs/$$study || exit 1; \
	  $(BIN)/python benchmarks/paper.py --keep runs/$$study || exit 1; \
	done
	$(BIN)/python benchmarks/paper.py

fuzz-readers: setup  ## 100,000 damaged files through every reader of bipace analyze
	BIPACE_FUZZ=100000 $(BIN)/pytest tests/unit/test_analyze_fuzz.py -n 2

fuzz: setup  ## random ugly batches through every recipe, 19 minutes at a time, until there have been a million
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py --minutes 19

attack: setup  ## settings, environments, folders, files and disks from hell through the real command line
	OMP_NUM_THREADS=1 $(BIN)/python tests/attack/run.py

.venv-trl/.installed: requirements-trl.lock pyproject.toml
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-trl.lock
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

bench-trl: .venv-trl/.installed  ## rollout and update beside TRL's GRPOTrainer, same tokens
	OMP_NUM_THREADS=1 .venv-trl/bin/python benchmarks/stock_trl/throughput.py

.venv-alfworld/.installed: requirements-alfworld.lock
	$(PYTHON) -m venv .venv-alfworld
	.venv-alfworld/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-alfworld.lock
	@touch $@

parity-alfworld: .venv-alfworld/.installed  ## the ALFWorld engine against the stock stack, byte for byte
	PYTHONPATH=src OMP_NUM_THREADS=1 .venv-alfworld/bin/python benchmarks/stock_alfworld/parity.py

speed-alfworld: .venv-alfworld/.installed  ## the ALFWorld engine's speed beside the stock stack's
	PYTHONPATH=src OMP_NUM_THREADS=1 .venv-alfworld/bin/python benchmarks/alfworld_speed.py

$(VERL_VENV)/.installed: requirements-verl.lock pyproject.toml
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_PIP) torch==2.13.0
	$(VERL_PIP) --no-deps -r requirements-verl.lock
	$(VERL_PIP) --no-deps --editable .
	@touch $@

test-engines: $(VERL_VENV)/.installed .venv-trl/.installed  ## verl and TRL end to end on the CPU, side by side, each in its own environment
	@rm -rf .verl-jobs .trl-jobs
	@OMP_NUM_THREADS=1 .venv-trl/bin/python -m pytest tests/engines/test_trl_*.py --durations=10 --basetemp=.trl-jobs \
	  > .trl-tests.log 2>&1 & trl=$$!; \
	$(VERL_VENV)/bin/python -m pytest tests/engines/test_verl_*.py -n 2 --dist loadfile --durations=10 --basetemp=.verl-jobs; \
	verl=$$?; wait $$trl; trl=$$?; cat .trl-tests.log; exit $$((verl + trl))

.venv-docs/.installed: requirements-docs.lock
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.lock
	@touch $@

docs: .venv-docs/.installed  ## build the documentation into site/; a broken link, anchor or reference stops it
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

wheel-test: setup  ## build the wheel, install it with every extra into fresh environments, run its commands; results/install.json
	BIPACE_WHEEL=all $(BIN)/pytest tests/install --durations=20

bench-trl-adapter: .venv-trl/.installed  ## the TRL adapter: loss beside stock, features, overhead, learning; results/trl_adapter.json
	OMP_NUM_THREADS=1 .venv-trl/bin/python benchmarks/trl_adapter.py

lock:  ## pin what development and CI install, for Python 3.10-3.13 (needs uv)
	echo 'torch==2.13.0' > .torch-override
	uv pip compile --universal --python-version 3.10 pyproject.toml --extra dev --override .torch-override \
	  --no-header --no-annotate --quiet --output-file .resolved
	(sed -n '/^#/p' requirements.lock; grep -vE '^(nvidia|cuda|triton)' .resolved) > .pinned && mv .pinned requirements.lock
	rm -f .torch-override .resolved

clean:  ## remove the virtual environment and caches (runs stay)
	rm -rf $(VENV) .venv-docs site .verl-jobs .trl-jobs .trl-tests.log .pytest_cache .ruff_cache .hypothesis .import_linter_cache
