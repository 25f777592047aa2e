"""Every figure, drawn from a result table alone: one style, one palette, few primitives."""

from lib.plots import said
from lib.plots.curves import (
    plot_cosines,
    plot_curves,
    plot_reported_lambda,
    plot_studies,
    plot_trade_off,
)
from lib.plots.dots import control_rows, plot_differences, plot_dots
from lib.plots.labels import label_of, pair_label, with_labels
from lib.plots.stack import JUDGED, POOLED, dev_lambdas, plot_composition, plot_spectrum
from lib.plots.style import save
