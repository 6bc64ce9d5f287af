# Two commands do everything on a machine that has only Python and pip: `make test` and `make reproduce`.
VENV ?= .venv
PYTHON ?= python3

BIN := $(VENV)/bin
STAMP := $(VENV)/.factmem-installed
DOCS_STAMP := $(VENV)/.factmem-docs-installed
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help reproduce test nightly browser lint format bench bench-memories bench-scaling bench-compiler bench-large-tables bench-protocols bench-capacity bench-dynamics bench-bounds bench-smallest docs clean

help:
	@echo 'make reproduce  every figure and claim of the paper, and a report: reproduction/report.html'
	@echo 'make test       lint, types and tests'
	@echo 'make nightly    the slow tests too'
	@echo 'make bench      speed, as ratios to benchmarks/dense.py measured in the same run'
	@echo 'make bench-memories  parameters that each memory needs, into benchmarks/memories.md; resumes'
	@echo 'make bench-scaling   how Theorems 3 and 4 grow with the facts, into benchmarks/scaling.md; resumes'
	@echo 'make bench-compiler  facts per parameter of the compiler, into benchmarks/compiler.md; resumes'
	@echo 'make bench-large-tables  time and memory of the compiler, into benchmarks/large_tables.md; resumes (TABLES=folder)'
	@echo 'make bench-protocols  facts that training stores by each protocol, and hard noise, into benchmarks/; resumes'
	@echo 'make bench-capacity  facts that shapes store, and the early stopping rule, into benchmarks/; resumes'
	@echo 'make bench-dynamics  maps of the stages of training, into docs/dynamics/; resumes'
	@echo 'make bench-bounds  stored bits and losses of models beside the bounds, into docs/bounds/; resumes'
	@echo 'make bench-smallest  the smallest case of each benchmark, printed as JSON'
	@echo 'make docs       the documentation, into site/'
	@echo 'make format     let ruff format the code'
	@echo 'VENV=folder     where the virtual environment goes (default .venv)'

# PIP_CONSTRAINT pins the packages that build the project as well as those that it needs.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(PIP) --editable '.[docs]'
	@touch $@

reproduce: $(STAMP)
	$(BIN)/factmem reproduce

# Each file runs on one worker, so that its tests share compiled programs. tests/conftest.py sets
# the number of workers and the order of the files.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# Tests whose numbers depend on how XLA compiles run with the optimizations that users have.
OPTIMIZED := tests/memories tests/training tests/transformer

test: lint browser
	$(BIN)/python -m pytest $(PARALLEL) $(addprefix --ignore=,$(OPTIMIZED))
	FACTMEM_TEST_OPTIMIZED=1 $(BIN)/python -m pytest $(PARALLEL) $(OPTIMIZED)

nightly: lint browser
	$(BIN)/python -m pytest $(PARALLEL) $(addprefix --ignore=,$(OPTIMIZED)) -m ''
	FACTMEM_TEST_OPTIMIZED=1 $(BIN)/python -m pytest $(PARALLEL) $(OPTIMIZED) -m ''

# Tests look at the report in a browser, if there is one.
browser:
	scripts/install-chromium

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright --pythonpath $(BIN)/python src

format: $(STAMP)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP)
	$(BIN)/python benchmarks/forms.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/vocabularies.py

bench-memories: $(STAMP)
	$(BIN)/python benchmarks/memories.py --slow

bench-scaling: $(STAMP)
	$(BIN)/python benchmarks/scaling.py

bench-compiler: $(STAMP)
	$(BIN)/python benchmarks/compiler.py

bench-large-tables: $(STAMP)
	$(BIN)/python benchmarks/large_tables.py $(if $(TABLES),--tables $(TABLES))

bench-protocols: $(STAMP)
	$(BIN)/python benchmarks/protocols.py
	$(BIN)/python benchmarks/hard_noise.py

bench-capacity: $(STAMP)
	$(BIN)/python benchmarks/early_stopping.py
	$(BIN)/python benchmarks/capacity.py

bench-dynamics: $(STAMP)
	$(BIN)/python benchmarks/dynamics.py

bench-bounds: $(STAMP)
	$(BIN)/python benchmarks/bounds.py

bench-smallest: $(STAMP)
	for name in bounds capacity compiler dynamics early_stopping forms hard_noise large_tables memories protocols scaling training vocabularies; do \
		echo "$$name:"; $(BIN)/python benchmarks/$$name.py --smallest || exit 1; \
	done

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache .hypothesis
