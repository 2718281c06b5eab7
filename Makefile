# smelt: build a virtual environment once, then run what was asked for.
# Another interpreter: make test PYTHON=python3.12. Other pytest arguments: make test ARGS="-k softmax".

PYTHON ?= python3
ARGS ?=
FUNCTION ?= exp
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest -n 2
TESTS := tests:tests/helpers

.PHONY: help demo test check test-long test-open fuzz proofs replay counts parity parity-torch parity-cuda cuda-kernels cuda-compare gpu-check ulp constraints clean

help:
	@echo "make demo       train and inspect a small model"
	@echo "make test       all tests"
	@echo "make check      lint and types"
	@echo "make test-long  thousands of random programs, all samples of ops, all models of the torch.compile tests"
	@echo "make test-open  thousands of random programs of open sizes alone"
	@echo "make fuzz       random programs from the schemas of all ops against PyTorch: make fuzz ARGS=\"--count 20000\""
	@echo "make proofs     that kernels stay in their memory, write their results and do not race: make proofs ARGS=--long"
	@echo "make replay     the text of every stage of many programs, against a commit: make replay BASE=<commit>"
	@echo "make counts     figures of the shape of the source: constants, cycles, mutables; of another tree: ARGS=<directory>"
	@echo "make parity     every aten call of PyTorch's databases, forward and all derivatives: make parity ARGS=\"--dtype f32,bf16\""
	@echo "make parity-torch  torch.compile against eager over PyTorch's databases of ops and modules"
	@echo "make parity-cuda  every op and workload in Numba's simulator of CUDA, and as machine code"
	@echo "make cuda-kernels  all kernels of the benchmarks as machine code of GPUs (no GPU is needed)"
	@echo "make cuda-compare  instructions and bytes of CUDA kernels beside those of hand-written ones (needs nvcc, no GPU)"
	@echo "make gpu-check  every op on an NVIDIA GPU against PyTorch"
	@echo "make ulp        the error of one f32 function over all operands: make ulp FUNCTION=exp"
	@echo "make constraints  write the installed versions to constraints.txt, once the tests have passed with them"
	@echo "make clean      remove the virtual environment and all caches"

demo: $(VENV)/installed
	$(BIN)/smelt demo

test: $(VENV)/installed-test
	$(PYTEST) $(ARGS)

test-long: $(VENV)/installed-test
	$(PYTEST) tests/cpu/test_random_programs.py tests/jit/test_open_sizes.py tests/torch/test_torch_open_sizes.py tests/torch/test_torch_models.py \
		tests/runtime/test_interrupts.py tests/ir/test_mutations.py tests/ops/test_fuzz.py tests/ops/test_parity.py \
		tests/ops/test_special_values.py tests/ops/test_derivatives_at_edges.py tests/cpu/test_symbols.py \
		--long $(ARGS)

fuzz: $(VENV)/installed-test
	PYTHONPATH=$(TESTS) $(BIN)/python -m fuzz $(ARGS)

proofs: $(VENV)/installed-test
	PYTHONPATH=$(TESTS) $(BIN)/python -m proofs $(ARGS)

replay: $(VENV)/installed-test
	@test -n "$(BASE)" || { echo "make replay BASE=<commit>: which commit?" >&2; exit 2; }
	$(BIN)/python tools/replay.py $(BASE) $(ARGS)

counts: $(VENV)/installed
	$(BIN)/python tools/counts.py $(ARGS)

test-open: $(VENV)/installed-test
	$(PYTEST) tests/jit/test_open_sizes.py tests/torch/test_torch_open_sizes.py --long $(ARGS)

parity: $(VENV)/installed-test
	PYTHONPATH=$(TESTS) $(BIN)/python -m parity_aten $(ARGS)

parity-torch: $(VENV)/installed-test
	PYTHONPATH=$(TESTS) $(BIN)/python -m parity_torch $(ARGS)

parity-cuda: $(VENV)/installed-test
	NUMBA_ENABLE_CUDASIM=1 PYTHONPATH=$(TESTS) $(BIN)/python -m parity_cuda $(ARGS)
	PYTHONPATH=$(TESTS) $(BIN)/python -m parity_cuda $(ARGS)

cuda-kernels: $(VENV)/installed-test
	$(BIN)/python -m smelt.tools.cuda.kernels $(ARGS)

cuda-compare: $(VENV)/installed-test
	$(BIN)/python -m smelt.tools.cuda.compare $(ARGS)

gpu-check: $(VENV)/installed-test
	$(BIN)/smelt doctor
	SMELT_TEST_BACKENDS=cuda $(BIN)/python -m pytest tests/cuda/test_gpu.py tests/ops/test_parity.py $(ARGS)

ulp: $(VENV)/installed-test
	$(BIN)/python -m smelt.tools.ulp $(FUNCTION) $(ARGS)

# mypy does not follow the mapping of folders to packages in pyproject.toml: it gets the tree as it is imported.
check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf $(VENV)/types && mkdir -p $(VENV)/types/smelt
	@ln -s $(CURDIR)/frontend/* $(foreach part,kernels passes backend tools,$(CURDIR)/$(part)) $(VENV)/types/smelt/
	MYPYPATH=$(VENV)/types $(BIN)/mypy

# The stamps depend on pyproject.toml and constraints.txt: dependencies are installed when these change, and only then.
$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable ".[test]"
	@touch $@ $(VENV)/installed

constraints: $(VENV)/installed-test
	@sed -n '/^#/p' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable --exclude smelt | sed 's/+cpu$$//' >> $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "smelt needs Python 3.11 or newer; name one with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
