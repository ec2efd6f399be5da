.PHONY: check format test gpu-test

check:          ## what CI runs, without its fresh environment
	ruff format --check .
	ruff check .
	mypy
	python -m pytest -n 2 --dist loadgroup

format:
	ruff format .
	ruff check --fix .

test:
	python -m pytest -n 2 --dist loadgroup

gpu-test:       ## needs a CUDA device; everything in it skips with a reason elsewhere
	python -m pytest tests/gpu -rs
