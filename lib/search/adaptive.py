"""Adaptive lambda: how much contrast a pair (H+, H-) can bear (CHR's future work, made exact).

The closer a mimic is to its target, the more of the target is lost by subtracting it. Each rule
maps c = cos(h+, h-), shape (n,), to one lambda per question, shape (n,). Parameters are chosen on
development questions only. L1 to L4 number the rules; L4 works per passage, not per question, and
lives in ``lib.search.contrast.margin_forms``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rule:
    """A named rule with its parameters; calling it on c gives lambda, both of shape (n,)."""

    name: str
    parameters: Mapping[str, float]
    apply: Callable[[np.ndarray], np.ndarray]

    def __call__(self, c: np.ndarray) -> np.ndarray:
        return self.apply(np.asarray(c, dtype=np.float64))

    @property
    def label(self) -> str:
        """Name and parameters as tables and legends show them."""
        values = [f"{name}={value:g}" for name, value in self.parameters.items()]
        return f"{self.name} ({', '.join(values)})"


def fixed(lam: float) -> Rule:
    """The paper's rule: the same lambda for every question."""
    return Rule("fixed", {"lambda": lam}, lambda c: np.full_like(c, lam))


def attenuated(lam_max: float, gamma: float, c_dev: np.ndarray) -> Rule:
    """L1: lambda_max (1 - F(c))^gamma, F the distribution of c on development questions.

    Percentiles make it free of the encoder's scale of cosines.
    """
    sorted_dev = np.sort(c_dev)

    def apply(c: np.ndarray) -> np.ndarray:
        percentile = np.searchsorted(sorted_dev, c, side="right") / len(sorted_dev)
        return lam_max * (1 - percentile) ** gamma

    return Rule("L1 attenuated", {"lambda_max": lam_max, "gamma": gamma}, apply)


def attenuated_linear(lam_max: float, gamma: float, c_dev: np.ndarray) -> Rule:
    """L1's parametric twin: lambda_max clip((1 - c) / (1 - c0), 0, 1)^gamma, c0 the dev median."""
    c0 = float(np.median(c_dev))

    def apply(c: np.ndarray) -> np.ndarray:
        return lam_max * np.clip((1 - c) / (1 - c0), 0, 1) ** gamma

    # Rounded where it is shown: labels are keys, and processors agree on cosines to about 1e-6.
    shown = {"lambda_max": lam_max, "gamma": gamma, "c0": round(c0, 3)}
    return Rule("L1 linear", shown, apply)


def orthogonal(lam: float) -> Rule:
    """L2: subtract only what H- adds beyond H+, h+ - lambda (h- - c h+).

    Ranks as plain CHR with lambda / (1 + lambda c), and keeps cos(query, h+) at
    1 / sqrt(1 + lambda^2 (1 - c^2)), at least 0.71 for lambda = 1. Defined for lambda c > -1.
    """

    def apply(c: np.ndarray) -> np.ndarray:
        if (lam * c <= -1).any():
            raise ValueError("L2 needs lambda * c > -1: use a smaller lambda for opposite pairs")
        return lam / (1 + lam * c)

    return Rule("L2 orthogonal", {"lambda": lam}, apply)


def drift_budget(lam_max: float, rho: float) -> Rule:
    """L3: the largest lambda <= lambda_max that keeps cos(query, h+) >= rho, 0 < rho <= 1.

    min(lambda_max, t / (sqrt(1 - c^2) + c t)) with t = sqrt(1 - rho^2) / rho. For c so negative
    that this denominator is not positive, subtracting h- never turns the query that far.
    """
    if not 0 < rho <= 1:
        raise ValueError(f"rho is a cosine in (0, 1], not {rho}")
    t = np.sqrt(1 - rho * rho) / rho

    def apply(c: np.ndarray) -> np.ndarray:
        denominator = np.sqrt(np.clip(1 - c * c, 0, None)) + c * t
        with np.errstate(divide="ignore"):
            return np.where(denominator > 0, np.minimum(lam_max, t / denominator), lam_max)

    return Rule("L3 drift budget", {"lambda_max": lam_max, "rho": rho}, apply)
