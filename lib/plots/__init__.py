"""Every figure, drawn from a result table alone: one style, one palette, one file a study."""

from lib.plots.labels import label_of, pair_label, with_labels
from lib.plots.lam import (
    plot_cosines,
    plot_differences,
    plot_lambda,
    plot_lines,
    plot_reading,
    plot_reported_lambda,
    plot_sizes,
    plot_spectrum,
    plot_studies,
    plot_trade_off,
)
from lib.plots.style import save

__all__ = [
    "label_of",
    "pair_label",
    "plot_cosines",
    "plot_differences",
    "plot_lambda",
    "plot_lines",
    "plot_reading",
    "plot_reported_lambda",
    "plot_sizes",
    "plot_spectrum",
    "plot_studies",
    "plot_trade_off",
    "save",
    "with_labels",
]
