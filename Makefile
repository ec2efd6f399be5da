.PHONY: try test test-long lint check format docs site ray-test gpu-test

try:            ## a first answer: environment, pinned versions, a search of a minute
	python3 -m venv .venv
	.venv/bin/pip install --quiet -c constraints.txt -e ".[examples]"
	.venv/bin/autotune search examples/digits_cnn.py --time-budget 1m

test:           ## the tests of minutes: environment, pinned versions, pytest
	python3 -m venv .venv
	.venv/bin/pip install --quiet -c constraints.txt -e ".[dev]"
	.venv/bin/python -m pytest -n 4 --dist loadfile -m "not long"

test-long:      ## all other tests, in the environment of `make test`: profiles, ranks, fleets, browsers, most real faults
	.venv/bin/python -m pytest -n 4 --dist loadfile -m long

lint:           ## the linters, in the environment of `make test`
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

check: test test-long lint

format:
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

docs:           ## the pages that are written from the code
	.venv/bin/python docs/command_line.py
	.venv/bin/python docs/messages.py

site:           ## the documents as pages, in build/site
	.venv/bin/pip install --quiet -c constraints.txt mkdocs-material
	.venv/bin/mkdocs build --strict

ray-test:       ## searches on real Ray clusters of one node and two, which the gate does not install
	.venv/bin/pip install --quiet -c constraints.txt -e ".[dev,ray]"
	.venv/bin/python -m pytest tests/fleet/test_ray.py

gpu-test:       ## needs a CUDA device; everything in it skips with a reason elsewhere
	.venv/bin/python -m pytest tests/gpu -rs

FRAMEWORKS = tests/benchmarks/test_gpu_catalogue.py tests/contract/test_targets.py tests/export/test_values.py tests/profile/test_metrics.py \
	tests/targets/test_lightning.py tests/targets/test_lightning_trainer.py tests/targets/test_trainer.py \
	tests/targets/commands/test_distributed.py tests/targets/commands/test_frameworks.py tests/targets/commands/test_recognition.py

frameworks:     ## what skips without Lightning, Transformers and Accelerate; with these in the environment of `make test`
	.venv/bin/python -m pytest -n 4 --dist loadfile $(FRAMEWORKS)

frameworks-older:  ## the same with the oldest versions that work, beside that environment and in front of it
	rm -rf .venv/older
	.venv/bin/pip install --quiet --no-deps --target .venv/older -r constraints-older.txt
	PYTHONPATH=$(CURDIR)/.venv/older .venv/bin/python -m pytest -W default -n 4 --dist loadfile $(FRAMEWORKS)
