# Creates the environments, builds the library and runs the tests; `make` lists the targets. A
# finished step is not repeated: each environment has a stamp file per set of extras.

PYTHON ?= python3
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Workers of `make demo`: one for each core, because more are slower, but at least 2.
NP ?= $(if $(filter 1,$(JOBS)),2,$(JOBS))
# Test files that run at the same time: more than there are cores, because ranks often wait for each
# other. Files that wait for deadlines most of the time (tests/conftest.py) run beside them.
TEST_JOBS ?= $(if $(filter 1,$(JOBS)),2,4)
WAIT_JOBS ?= 4
FUZZ_RUNS ?= 1000000
# The first seed of `make simulate` and how many there are, or the seconds for which new ones are drawn,
# and its sanitizers: undefined or address.
SEEDS ?= 1:1000
# How many stories of several jobs over one disk are drawn before these jobs.
STORIES ?= 200
SECONDS ?=
SANITIZERS ?=
ARCHS ?= x86_64 aarch64

# The wheels of two MPIs overwrite each other's files, so each MPI has an environment. Frameworks that
# need NumPy 1 and those that need NumPy 2 cannot be installed together, so they have one each.
MPICH := .venv
OPENMPI := .venv-openmpi
FRAMEWORKS := .venv-frameworks
JAX := .venv-jax
DOCS := .venv-docs
WHEELS := .venv-wheels
ENVS := $(MPICH) $(OPENMPI) $(FRAMEWORKS) $(JAX) $(DOCS) $(WHEELS)

BUILD := build/cmake
RESULTS := build/results
LIBRARY := multiverso/_lib/libmultiverso.so
# The library with failpoints (src/base/failpoint.h), which some tests load instead.
FAILPOINTS := $(BUILD)/libmultiverso_failpoints.so
# The library with the files for macOS (cmake/posix.cmake), which tests marked `release` load.
POSIX := $(BUILD)/libmultiverso_posix.so
# Folders are prerequisites too, because removing a file changes only the time of its folder.
CORE := CMakeLists.txt CMakePresets.json multiverso/_version.py \
        $(shell find src cmake -type d -o -name '*.cc' -o -name '*.h' -o -path 'cmake/*')
PACKAGE := Makefile pyproject.toml setup.py multiverso/_version.py

# Settings of the user's own environment must not reach these environments.
unexport PYTHONPATH PYTHONHOME CONDA_PREFIX PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport MPI4PY_LIBMPI MPI4PY_MPIABI MULTIVERSO_LIBRARY MULTIVERSO_PREBUILT_LIBRARY
# Without compiled modules on disk, importing TensorFlow takes 8 s instead of 3.
unexport PYTHONDONTWRITEBYTECODE
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

# $(call in,ENV) COMMAND runs a command in an environment. cmake and pip start a make of their own,
# which must not take options from this one. $(call run,ENV,COMMAND) prints the command first.
in = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL PATH="$(CURDIR)/$(1)/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/$(1)"
comma := ,
define run
@echo '$(2)'
@$(call timed,$(1)) $(2)
endef
# $(call timed,ENV) COMMAND runs a command, whose times are in the table at the end of the tests.
timed = $(call in,$(1)) python tests/measured.py $(RESULTS) $@
# $(call pytest,NAME,OPTIONS) is a test run whose results go to $(RESULTS)/NAME.xml. Tests of one file
# share jobs, so one process runs them all. A process that ends because a test hangs is not replaced.
pytest = MULTIVERSO_TEST_SLOTS=$(TEST_JOBS) python -m pytest -n $(shell expr $(TEST_JOBS) + $(WAIT_JOBS)) \
         --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --junit-xml $(RESULTS)/$(1).xml $(2)

# An environment contains its absolute path, so a copy would run the code of the original.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
MADE_IN := $(shell cat $(ENVS:%=%/.created) 2>/dev/null | sort -u)
ifneq ($(or $(MADE_IN),$(CURDIR)),$(CURDIR))
$(error the environments here were made in $(MADE_IN): run make clean first)
endif
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # each step uses all cores
.SECONDEXPANSION:
.PHONY: help demo test test-all test-release test-unit test-cpp test-python test-slow test-openmpi test-frameworks \
        test-posix test-asan test-tsan fuzz simulate \
        simulate-undefined simulate-address docs lint bench wheels sdist recipes release release-check \
        compiler clean requirements

help:
	@echo 'make demo      train a logistic regression with 1 and with NP=$(NP) workers in $(MPICH), which takes'
	@echo '               seconds, after some minutes of compiling and downloading'
	@echo 'make test      the tests of the core: C++, Python, and MPI with 1 to 4 ranks under MPICH;'
	@echo '               or one of its parts, test-cpp and test-python'
	@echo 'make test-all  these and tests of all else, once; the other parts are docs, test-slow,'
	@echo '               test-openmpi and test-frameworks'
	@echo 'make test-release  all tests in all environments that have what they need; its other parts'
	@echo '               are test-posix, test-asan, test-tsan and fuzz'
	@echo 'make test-unit the Python tests that need no MPI'
	@echo 'make test-asan, make test-tsan, make fuzz'
	@echo '               the C++ tests with sanitizers; FUZZ_RUNS=$(FUZZ_RUNS) mutated inputs'
	@echo 'make simulate  whole jobs under a seeded scheduler: SEEDS=$(SEEDS), or new seeds for SECONDS=, and'
	@echo '               SANITIZERS=undefined or address'
	@echo 'make test-posix  the C++ tests of the files for macOS'
	@echo 'make docs      the documentation as a site, in build/docs'
	@echo 'make lint      ruff, mypy and clang-format'
	@echo 'make bench     compare tables and sync rounds with NumPy and MPI'
	@echo 'make wheels    wheels for the architectures ARCHS=$(ARCHS), compiled by zig, and'
	@echo 'make sdist     the source distribution, in dist'
	@echo 'make release   these, recipes for conda-forge and Spack, and the site, in dist (RELEASING.md), and'
	@echo 'make release-check  installs the wheel of this machine for each Python and MPI, and runs programs'
	@echo 'make clean     remove everything that was built, and the environments'
	@echo
	@echo 'PYTHON=$(PYTHON) (3.10 or newer) creates the environments. JOBS=$(JOBS) files are compiled, and'
	@echo 'TEST_JOBS=$(TEST_JOBS) test files run, at the same time.'

# pip waits for the network for most of its time, so it works while the library is compiled.
demo: compiler $(MPICH)/.created
	@$(if $(wildcard $(MPICH)/.demo),,echo 'make demo: compiling and downloading take some minutes, the first time')
	@$(MAKE) --no-print-directory $(MPICH)/.requirements & requirements=$$!; \
	  $(MAKE) --no-print-directory $(LIBRARY) && wait $$requirements
	@$(MAKE) --no-print-directory $(MPICH)/.demo
	$(call run,$(MPICH),OMP_NUM_THREADS=1 mpirun -np 1 python examples/numpy/logistic_regression.py --epochs 200)
	$(call run,$(MPICH),OMP_NUM_THREADS=1 mpirun -np $(NP) python examples/numpy/logistic_regression.py --epochs 200)

# ---- Tests -----------------------------------------------------------------------------------------

test: PARTS := test-cpp test-python
test-all test-release: PARTS := test-cpp test-python test-slow docs test-openmpi test-frameworks simulate
test-release: PARTS += test-posix test-asan test-tsan fuzz simulate-undefined simulate-address release-check
# With PARTS='docs test-openmpi' on the command line, only these parts run: CI runs some side by side.
RUN = $(MAKE) --no-print-directory --keep-going $(SELECTION)
# These need the first environment only, so the others are installed meanwhile.
FIRST := test-python test-slow
test-all test-release: BEGIN = $(RUN) requirements PARTS='$(PARTS)' &
# Tests of the core mostly wait and those of frameworks mostly compute, so both run at the same time,
# after what they share has been compiled. The output of the second ones is printed at the end. The
# shell starts them so that they ignore Ctrl-C.
BESIDE = $(if $(filter-out test-cpp $(COMPUTE),$(PARTS)),$(filter $(COMPUTE),$(PARTS)))
COMPUTE := test-frameworks simulate
test-all test-release: SHARED = $(if $(BESIDE),run $(FAILPOINTS);)
test-all test-release: ASIDE = $(if $(BESIDE),$(RUN) $(BESIDE) > $(RESULTS)/beside.log 2>&1 & \
                               beside=$$!; trap 'kill $$beside' INT TERM HUP;)
test-all test-release: JOINED = $(if $(BESIDE),wait $$beside || status=$$?; cat $(RESULTS)/beside.log;)
# CI waits for test-all, so it runs each test once, and not in each environment that has what it needs.
# Of the files about Keras, it runs those that are the same on each backend with PyTorch only. The suite
# of all adapters has each backend.
test-all: SELECTION := SUITE= AND='and not release' IN_JAX='-k "jax or docs"' \
                       IN_TENSORFLOW='tests/unit/adapters/test_keras_tensorflow.py' SEEDS=500000:1000
test-release: SELECTION := SECONDS=3600 STORIES=10000
test test-all test-release:
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(BEGIN) status=0; run() { [ $$# = 0 ] || $(RUN) "$$@" || status=$$?; }; \
	  run $(filter test-cpp,$(PARTS)); $(SHARED) wait; $(ASIDE) \
	  run $(filter $(FIRST),$(PARTS)); run $(filter-out test-cpp $(FIRST) $(BESIDE),$(PARTS)); \
	  $(JOINED) $(PYTHON) tests/summary.py $@ $(RESULTS) $(PARTS); exit $$status

test-cpp test-posix test-asan test-tsan: export GTEST_OUTPUT = xml:$(CURDIR)/$(RESULTS)/$(@:test-%=%)/
test-cpp: $(LIBRARY)
	@! grep -q 'GoogleTest not found' $(BUILD)/configure.log || { $(GET_GOOGLETEST) }
	$(call run,$(MPICH),cmake --build $(BUILD))
	$(call run,$(MPICH),ctest --test-dir $(BUILD) --output-on-failure --parallel $(TEST_JOBS))

# Where GoogleTest is not installed, apt downloads the sources that Debian and Ubuntu have of it, which
# needs no root because nothing is installed. Its lists go to the build folder, too.
GOOGLETEST := build/googletest
define GET_GOOGLETEST
  echo 'Downloading GoogleTest, which the C++ tests need'; \
  { mkdir -p $(GOOGLETEST)/lists/partial && cd $(GOOGLETEST) && \
  set -- -qq -o Dir::State::Lists="$$PWD/lists" -o Dir::Cache="$$PWD/cache" && \
  apt-get "$$@" update && apt-get "$$@" download googletest && dpkg-deb -x googletest_*.deb . && \
  cd $(CURDIR) && $(call in,$(MPICH)) cmake $(BUILD); } > $(BUILD)/googletest.log 2>&1 || \
  echo 'GoogleTest could not be downloaded, so the C++ tests are skipped: apt install libgtest-dev';
endef

# The -m expressions of test-python and test-slow complement each other, so no test can be left out.
# The other environments repeat tests with another MPI or with frameworks.
# Some tests need the library with failpoints. Compiling it takes a minute, so `make test` skips them
# unless there is one, which must then be up to date.
test-python: $(MPICH)/.installed \
             $(if $(filter test-slow,$(MAKECMDGOALS)),$(FAILPOINTS),$(wildcard $(FAILPOINTS)))
	$(call run,$(MPICH),$(call pytest,mpich,-m "not slow and not frameworks"))

test-unit: $(MPICH)/.installed $(FAILPOINTS)
	$(call run,$(MPICH),$(call pytest,unit,tests/unit))

test-slow: $(MPICH)/.examples $(FAILPOINTS) $(if $(AND),,$(POSIX))
	$(call run,$(MPICH),$(call pytest,mpich-slow,-m "(slow or frameworks) $(AND)"))

test-openmpi: OPTIONS := -m "not one_mpi and not frameworks $(AND)" tests/mpi tests/hosts tests/lua
test-openmpi: $(OPENMPI)/.installed $(FAILPOINTS)
	$(call run,$(OPENMPI),$(call pytest,openmpi,$(OPTIONS)))

# A job of a framework takes 3.5 GB, and computes more than it waits. Only files with tests of the
# backends of Keras are collected for these, because the other files import more frameworks, and one
# process runs them, because the import takes longer than most tests.
KERAS_TESTS = $(shell grep -rl --include='test_*.py' keras_backend tests)
test-frameworks: TEST_JOBS := 2
test-frameworks: WAIT_JOBS := 1
# Whether PyTorch's own tests run on the backend of torch.distributed.
SUITE := yes
IN_TENSORFLOW = $(KERAS_TESTS)
test-frameworks: $(FRAMEWORKS)/.installed $(JAX)/.installed
	$(call run,$(FRAMEWORKS),$(call pytest,frameworks,-m "frameworks and not keras_backend $(AND)"))
	$(call run,$(FRAMEWORKS),KERAS_BACKEND=tensorflow $(call pytest,tensorflow,-n 1 -m "keras_backend $(AND)" $(IN_TENSORFLOW)))
	$(call run,$(FRAMEWORKS),KERAS_BACKEND=torch $(call pytest,torch,-n 1 -m "keras_backend $(AND)" $(KERAS_TESTS)))
	$(call run,$(JAX),KERAS_BACKEND=jax $(call pytest,jax,-m "frameworks $(AND)" $(IN_JAX)))
	$(if $(SUITE),$(call run,$(FRAMEWORKS),python .ci/pytorch_suite.py --ranks 2))
	$(if $(SUITE),$(call run,$(FRAMEWORKS),python .ci/pytorch_suite.py --ranks 4))

test-posix: $(LIBRARY)
	$(call run,$(MPICH),cmake --build $(BUILD) --target posix)
	$(call run,$(MPICH),ctest --test-dir $(BUILD) -C posix -R ^posix_ --output-on-failure --parallel $(TEST_JOBS))

test-asan: PRESET := address
test-tsan: PRESET := thread
fuzz: PRESET := $(if $(shell command -v clang++),fuzz,fuzz-random)
fuzz: OPTIONS := -DMULTIVERSO_FUZZ_RUNS=$(FUZZ_RUNS)
test-asan test-tsan fuzz: $(MPICH)/.created
	$(call run,$(MPICH),cmake --preset $(PRESET) $(OPTIONS))
	$(call run,$(MPICH),cmake --build --preset $(PRESET))
	$(call run,$(MPICH),ctest --preset $(PRESET))

# The first seeds run twice, because a seed that fails must fail again.
simulate: PRESET := simulation$(if $(SANITIZERS),-$(SANITIZERS))
simulate: NEW := $(if $(SECONDS),$(shell date +%s) --seconds $(SECONDS),$(subst :, ,$(SEEDS)))
simulate: $(MPICH)/.created
	$(call run,$(MPICH),cmake --preset $(PRESET))
	$(call run,$(MPICH),cmake --build --preset $(PRESET))
	$(call run,$(MPICH),build/$(PRESET)/simulation check)
	$(call run,$(MPICH),build/$(PRESET)/simulation twice $(firstword $(NEW)) 20)
	$(call run,$(MPICH),build/$(PRESET)/simulation known tests/sim)
	$(call run,$(MPICH),build/$(PRESET)/simulation stories tests/sim/stories/runs/*.txt)
	$(call run,$(MPICH),build/$(PRESET)/simulation stories $(firstword $(NEW)) $(STORIES))
	$(call run,$(MPICH),build/$(PRESET)/simulation run $(NEW))
simulate-undefined simulate-address: simulate-%:
	@$(MAKE) --no-print-directory simulate SANITIZERS=$*

# --strict makes a warning of mkdocs an error; the tests then check the pages.
docs: $(DOCS)/.installed
	$(call run,$(DOCS),NO_MKDOCS_2_WARNING=1 mkdocs build --strict)
	$(call run,$(DOCS),python -m pytest --junit-xml $(RESULTS)/docs.xml tests/site)

# ---- Other targets ---------------------------------------------------------------------------------

lint: $(MPICH)/.dev
	$(call run,$(MPICH),ruff check .)
	$(call run,$(MPICH),ruff format --check .)
	$(call run,$(MPICH),mypy)
	@echo 'clang-format --dry-run --Werror src tests/cpp tests/fuzz tests/sim'
	@$(call in,$(MPICH)) clang-format --dry-run --Werror \
	  $(shell find src tests/cpp tests/fuzz tests/sim -name '*.cc' -o -name '*.h')

bench: $(MPICH)/.bench
	$(call run,$(MPICH),python benchmarks/tables.py --ranks 1 2 4)
	$(call run,$(MPICH),python benchmarks/sync.py --ranks 2 4)

# zig is a Clang with the headers and symbol versions of each glibc, and links its C++ library
# statically. The versions are pinned, because other tools make other bytes.
WHEEL_TOOLS := ziglang==0.17.1 cmake==4.4.5 setuptools==84.2.1 auditwheel==6.8.2
GLIBC := 2.28
PLATFORM := manylinux_$(subst .,_,$(GLIBC))
# The time that every file in an archive gets.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
wheels: $(ARCHS:%=wheel-%)
wheel-%: sdist
	@echo 'Building the wheel for $*'
	@rm -f dist/*-$(PLATFORM)_$*.whl  # of another version
	@umask 022; $(call in,$(WHEELS)) env SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) LDFLAGS=-s \
	  CXX='python -m ziglang c++ -target $*-linux-gnu.$(GLIBC)' \
	  CMAKE_ARGS='-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$* $(CMAKE_ARGS)' \
	  python -m pip wheel -q --no-deps --no-build-isolation -w dist dist/*.tar.gz \
	  --config-settings=--build-option=--plat-name=$(PLATFORM)_$*
	$(call run,$(WHEELS),auditwheel show dist/*-$(PLATFORM)_$*.whl)

# setuptools writes the current time and the files' owners into the archive, so tar packs it again.
sdist: $(WHEELS)/.installed
	@rm -rf build/sdist dist/*.tar.gz && mkdir -p build/sdist dist
	@umask 022; $(call in,$(WHEELS)) python -c 'from setuptools import build_meta; \
	  build_meta.build_sdist("build/sdist")' > build/sdist.log
	@tar -xf build/sdist/*.tar.gz -C build/sdist && rm build/sdist/*.tar.gz
	@cd build/sdist && tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner \
	  --mode=u=rwX,go=rX -cf - * | gzip -9n > ../../dist/$$(echo *).tar.gz && ls ../../dist/*.tar.gz

# The recipes name the checksum of the source distribution, whose bytes depend on the commit only.
recipes: sdist
	@set -- dist/*.tar.gz; version=$${1##*-} version=$${version%.tar.gz}; \
	  for recipe in conda/recipe.yaml spack/package.py; do mkdir -p dist/$${recipe%/*}; \
	    sed "s/@VERSION@/$$version/; s/@SHA256@/$$(sha256sum < $$1 | cut -d ' ' -f 1)/" \
	      packaging/$$recipe > dist/$$recipe && echo dist/$$recipe; done

release: wheels recipes docs
	@tar -C build -czf dist/site.tgz docs
	@cd dist && sha256sum *.whl *.tar.gz | tee SHA256SUMS

# Only the wheel of this machine can run here.
MACHINE := $(shell uname -m)
release-check: $(if $(wildcard dist/*_$(MACHINE).whl),,wheel-$(MACHINE)) $(MPICH)/.installed
	$(call run,$(MPICH),$(call pytest,wheels,tests/install/test_wheels.py))
	$(PYTHON) packaging/check_release.py dist/*_$(MACHINE).whl

clean:
	rm -rf build dist multiverso/_lib multiverso.egg-info $(ENVS)
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find $(wildcard multiverso tests examples benchmarks) -name __pycache__ -prune -exec rm -rf {} +

# ---- The library and the environments --------------------------------------------------------------

# make compiles the library, not pip, so that a change recompiles the changed files only. Renaming
# replaces the library in one step, which running processes require.
$(LIBRARY): $(CORE) | compiler $(MPICH)/.created
	@echo 'Compiling $@'
	@mkdir -p $(BUILD) $(@D)
	@$(call in,$(MPICH)) cmake --preset release > $(BUILD)/configure.log
	@$(call timed,$(MPICH)) cmake --build $(BUILD) --target multiverso
	@cp $(BUILD)/$(@F) $@.new && mv -f $@.new $@

$(FAILPOINTS) $(POSIX): $(BUILD)/lib%.so: $(LIBRARY)
	@$(call timed,$(MPICH)) cmake --build $(BUILD) --target $*
	@touch $@

INSTALL_HINT := Debian, Ubuntu: apt install g++ make python3-venv; Fedora: dnf install gcc-c++ make python3; \
                conda: conda install cxx-compiler make python
# $(call expect,TEST,WHAT) stops with a sentence that says what to install, if the test fails.
expect = @{ $(1); } >/dev/null 2>&1 || { echo 'expected $(2). $(INSTALL_HINT).' >&2; exit 1; }
compiler:
	$(call expect,set -- $(CXX); command -v $$1 || command -v g++ || command -v clang++,a C++ compiler)

$(FRAMEWORKS)/.created: SETUPTOOLS := setuptools>=77,<81 # for Theano
$(ENVS:%=%/.created): SETUPTOOLS ?= setuptools>=77
# SciPy 1.10, which Theano needs, has no wheels for Python 3.12, and JAX has none for Python 3.10.
$(FRAMEWORKS)/.created: PYTHONS := version == (3, 11)
$(JAX)/.created: PYTHONS := version >= (3, 11)
$(ENVS:%=%/.created): PYTHONS ?= version >= (3, 10)
$(ENVS:%=%/.created): %/.created:
	$(call expect,command -v $(PYTHON),Python 3.10 or newer as $(PYTHON))
	$(call expect,$(PYTHON) -c 'import ensurepip$(comma) venv',the modules venv and ensurepip of $(PYTHON))
	@$(PYTHON) -c 'import sys; version = sys.version_info[:2]; sys.exit(not ($(PYTHONS)) and \
	  "expected Python with $(PYTHONS) for $*, received %s; set PYTHON=..." % sys.version.split()[0])'
	@echo 'Creating the environment $*'
	@$(PYTHON) -m venv --clear $*
	@$(call in,$*) python -m pip install -q --no-compile 'cmake>=3.21' '$(strip $(SETUPTOOLS))'
	@echo '$(CURDIR)' > $@

# The extras of pyproject.toml that each stamp file stands for. Newer releases of the pinned
# frameworks are gigabytes larger, or need another NumPy.
$(MPICH)/.installed: EXTRAS := mpich,safetensors,test
$(MPICH)/.demo $(MPICH)/.requirements: EXTRAS := mpich,examples
$(MPICH)/.examples: EXTRAS := theano,examples,notebook
$(MPICH)/.dev: EXTRAS := dev
$(MPICH)/.bench: EXTRAS := bench
$(OPENMPI)/%: EXTRAS := openmpi,test
$(FRAMEWORKS)/%: EXTRAS := mpich,lasagne,torch,keras,learn,examples,bench,pools,test
$(FRAMEWORKS)/%: PINS := 'numpy==1.26.4' 'scipy==1.10.1' 'torch==2.13.0' 'keras==3.15.1' \
                         'tensorflow-cpu==2.21.0' 'accelerate==1.15.0' 'lightning==2.6.6' \
                         'transformers==5.24.0'
$(JAX)/%: EXTRAS := mpich,jax,keras,learn,examples,test
$(JAX)/%: PINS := 'jax==0.10.2' 'keras==3.15.1' 'flax==0.12.8' 'optax==0.2.8'

# With a path instead of a finder of imports, a start of Python takes 20 ms instead of 55, and the tests
# start thousands.
EDITABLE := --config-settings editable_mode=compat -e
install = @$(call timed,$(@D)) MULTIVERSO_PREBUILT_LIBRARY=$(BUILD)/$(notdir $(LIBRARY)) \
          python -m pip install -q --no-compile --no-build-isolation $(EDITABLE) '.[$(EXTRAS)]' $(PINS)

# Python 3.10 has no tomllib.
TOML := __import__("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli", fromlist=[""])

# What an environment needs can be installed before the library has been compiled.
OTHERS := $(OPENMPI) $(FRAMEWORKS) $(JAX)
requirements: $(if $(filter docs,$(PARTS)),$(DOCS)/.installed) \
              $(if $(filter test-openmpi,$(PARTS)),$(OPENMPI)/.requirements) \
              $(if $(filter test-frameworks,$(PARTS)),$(FRAMEWORKS)/.requirements $(JAX)/.requirements)
	@:
$(MPICH)/.requirements $(OTHERS:%=%/.requirements): Makefile pyproject.toml | $$(@D)/.created
	@echo 'Installing the requirements of multiverso[$(EXTRAS)] in $(@D)'
	@$(call in,$(@D)) python -c 'import sys; \
	  project = $(TOML).load(open("pyproject.toml", "rb"))["project"]; \
	  extras = [project["optional-dependencies"][name] for name in sys.argv[1].split(",")]; \
	  print(*sum(extras, project["dependencies"]), sep="\n")' '$(EXTRAS)' > $(@D)/requirements.txt
	@$(call timed,$(@D)) python -m pip install -q --no-compile --no-build-isolation \
	  -r $(@D)/requirements.txt $(PINS)
	@touch $@

$(OTHERS:%=%/.installed): %/.installed: %/.requirements
$(MPICH)/.examples $(MPICH)/.dev $(MPICH)/.bench: $(MPICH)/.installed
$(MPICH)/.demo $(MPICH)/.installed $(MPICH)/.examples $(MPICH)/.dev $(MPICH)/.bench $(OPENMPI)/.installed \
$(FRAMEWORKS)/.installed $(JAX)/.installed: $(PACKAGE) | $(LIBRARY) $$(@D)/.created
	@echo 'Installing multiverso[$(EXTRAS)] in $(@D)'
	$(install)
	@touch $@

# The site is built from the sources, so its environment has no Multiverso.
$(DOCS)/.installed: Makefile pyproject.toml | $(DOCS)/.created
	@echo 'Installing the tools of the site in $(DOCS)'
	@$(call in,$(DOCS)) python -c 'import sys; print("pytest", *$(TOML).load(open("pyproject.toml", \
	  "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(@D)/requirements.txt
	@$(call in,$(DOCS)) python -m pip install -q --no-compile -r $(@D)/requirements.txt
	@touch $@

$(WHEELS)/.installed: Makefile | $(WHEELS)/.created
	@echo 'Installing zig and the tools for wheels in $(WHEELS)'
	@$(call in,$(WHEELS)) python -m pip install -q --no-compile $(WHEEL_TOOLS)
	@touch $@
