"""Optuna's own published contract for samplers, in spaces that have nothing to do with training."""

import pytest
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

from autotune.structured.sampler import StructuredSampler


class TestContract(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return StructuredSampler
