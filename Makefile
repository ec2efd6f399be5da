.PHONY: check format test gpu-test

check:          ## what CI runs, without its fresh environment
	ruff format --check .
	ruff check .
	mypy
	python -m pytest

format:
	ruff format .
	ruff check --fix .

test:
	python -m pytest

gpu-test:       ## needs a CUDA device; everything in it skips with a reason elsewhere
	python -m pytest tests/gpu -rs
