"""Every figure, drawn from a result table alone: one style, few primitives, labels as data."""

from lib.plots import figures
from lib.plots.captions import caption
from lib.plots.figures import dev_lambdas
from lib.plots.labels import (
    COLOURS,
    GREY,
    arms_in_order,
    colours_of,
    label_of,
    named_rows,
    names_of,
    with_labels,
)
from lib.plots.primitives import (
    JUDGED,
    P_AT_5,
    POOLED,
    plot_composition,
    plot_curves,
    plot_differences,
    plot_dots,
    plot_heatmap,
    plot_spectrum,
)
from lib.plots.style import in_percent, save
