"""Model-FLOP utilisation: the arithmetic, the peaks, and what is not known."""

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.flops import counted
from benchmarks.utilisation import PEAKS, peak_flops, utilisation

CATALOGUE = Path(__file__).parents[2] / "benchmarks" / "catalogue"
H200 = "NVIDIA H200"


def test_utilisation_is_the_models_flop_over_the_peak():
    share = utilisation(24e9, 10_000, H200, {"amp_dtype": "bfloat16"}, convolves=True)

    assert share == pytest.approx(240e12 / 989.4e12)


@pytest.mark.parametrize("name", ["Intel(R) Xeon(R) Processor", "NVIDIA H200 NVL", "AMD Instinct MI300X"])
def test_a_device_that_nobody_looked_up_has_no_utilisation(name):
    assert utilisation(1e9, 1.0, name, {"amp_dtype": "bfloat16"}, convolves=False) is None


@pytest.mark.parametrize(
    ("values", "convolves", "arithmetic", "teraflops"),
    [
        ({"amp_dtype": None}, False, "float32", 66.9),
        ({"amp_dtype": None, "tf32": True}, False, "tf32", 494.7),
        ({"amp_dtype": None}, True, "tf32", 494.7),  # cuDNN's own default
        ({"amp_dtype": "float16"}, True, "float16", 989.4),
    ],
)
def test_the_peak_is_that_of_the_arithmetic_in_use(values, convolves, arithmetic, teraflops):
    peak = peak_flops(H200, values, convolves=convolves)

    assert peak == (pytest.approx(teraflops * 1e12), arithmetic)


def test_hardware_without_tf32_computes_full_precision_and_without_bfloat16_has_no_peak_in_it():
    assert peak_flops("Tesla T4", {"amp_dtype": None, "tf32": True}, convolves=True) == (8.1e12, "float32")
    assert peak_flops("Tesla T4", {"amp_dtype": "bfloat16"}, convolves=True) is None


def test_peaks_are_dense_and_fall_with_precision():
    for peaks in PEAKS.values():
        assert peaks.half >= 2 * (peaks.tf32 or 0) > 0 or peaks.tf32 is None
        assert (peaks.tf32 or peaks.half) >= peaks.float32
        assert peaks.source


@pytest.fixture
def small(monkeypatch):
    """A target of the catalogue, tiny."""
    monkeypatch.setenv("CATALOGUE_SMALL", "1")
    monkeypatch.syspath_prepend(CATALOGUE)
    names = {path.stem for path in CATALOGUE.glob("*.py")}
    yield importlib.import_module
    for name in names & set(sys.modules):
        del sys.modules[name]


def test_flop_of_a_perceptron_are_those_of_its_matrices(small):
    inputs, width = 16, 64
    matrices = inputs * width + 2 * width * width + width
    forward = 2 * matrices

    found = counted(small("tabular_mlp"), "cpu")

    # Backward: twice as much, but nobody asks for the gradient of the rows.
    assert found == {"flops_per_sample": 3 * forward - 2 * inputs * width, "convolves": False}


def test_a_network_of_convolutions_is_known_as_one(small):
    assert counted(small("unet"), "cpu")["convolves"]
