"""Adaptive lambda rules against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.search import adaptive
from lib.search.contrast import rotation

cosines = st.floats(-0.95, 0.999)


@given(cosines, st.floats(0.05, 3), st.floats(0.05, 0.999))
def test_the_drift_budget_is_the_largest_lambda_within_it(c, lam_max, rho):
    lam = float(adaptive.drift_budget(lam_max, rho)(np.array([c]))[0])
    allowed = np.degrees(np.arccos(rho))
    assert 0 < lam <= lam_max
    assert rotation(c, lam) <= allowed + 1e-3
    if lam < lam_max:
        assert rotation(c, lam * 1.001) > allowed - 1e-3
        assert rotation(c, lam) == pytest.approx(allowed, abs=1e-3)


@given(st.floats(-0.9, 1.0), st.floats(0, 1))
def test_the_orthogonal_rule_ranks_as_h_plus_minus_the_new_part_of_the_mimic(c, lam):
    h = np.array([1.0, 0.0])
    mimic = np.array([c, np.sqrt(1 - c * c)])
    want = h - lam * (mimic - c * h)
    here = h - float(adaptive.orthogonal(lam)(np.array([c]))[0]) * mimic
    assert np.allclose(here / np.linalg.norm(here), want / np.linalg.norm(want), atol=1e-9)


def test_the_orthogonal_rule_keeps_seventy_percent_of_the_target():
    c = np.linspace(0, 1, 50)
    assert rotation(c, adaptive.orthogonal(1.0)(c)).max() <= 45 + 1e-9
    with pytest.raises(ValueError, match="lambda"):
        adaptive.orthogonal(2.0)(np.array([-0.6]))


def test_attenuation_falls_from_lambda_max_to_zero_as_the_pair_merges():
    dev = np.linspace(0.2, 0.8, 61)
    for rule in (adaptive.attenuated(1.2, 2.0, dev), adaptive.attenuated_linear(1.2, 2.0, dev)):
        lam = rule(np.array([0.0, 0.3, 0.5, 0.7, 1.0]))
        assert lam[0] == pytest.approx(1.2) and lam[-1] == pytest.approx(0)
        assert (np.diff(lam) <= 0).all()
    half = adaptive.attenuated(1.0, 1.0, dev)(np.array([np.median(dev)]))[0]
    assert half == pytest.approx(0.5, abs=0.02)


def test_a_label_does_not_tell_processors_apart():
    """Cosines differ in the last digits from machine to machine; labels are keys of tables."""
    dev = np.linspace(0.2, 0.8, 61)
    for shift in (1e-6, -1e-6):
        here, there = (adaptive.attenuated_linear(1.0, 0.5, c) for c in (dev, dev + shift))
        assert here.label == there.label == "L1 linear (lambda_max=1, gamma=0.5, c0=0.5)"
        assert here(dev) != pytest.approx(there(dev), abs=1e-9)


def test_fixed_is_the_papers_rule_and_labels_say_the_parameters():
    assert adaptive.fixed(1.0)(np.array([0.1, 0.9])).tolist() == [1.0, 1.0]
    assert adaptive.drift_budget(1.0, 0.8).label == "L3 drift budget (lambda_max=1, rho=0.8)"
    with pytest.raises(ValueError, match="rho"):
        adaptive.drift_budget(1.0, 0.0)
