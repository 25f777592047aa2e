"""What a figure shows, read back from what was drawn."""

from __future__ import annotations


def texts(axis) -> list[str]:
    return [text.get_text() for text in axis.texts]


def title_of(figure) -> str:
    """The headline of a figure on one line."""
    return " ".join(figure.get_suptitle().split())


def panel_titles_of(figure) -> list[str]:
    titles = (axis.get_title(loc="left") for axis in figure.axes)
    return [title.replace("\u00a0", " ").replace("\n", " ") for title in titles]


def dots(axis) -> dict[str, tuple[float, bool]]:
    """By the name of a row: the value of its dot, and whether it has an interval."""
    names = [t.get_text() for t in axis.figure.axes[0].get_yticklabels()]
    whole = [line for line in axis.lines if len(line.get_xdata()) == 2]
    ends = {line.get_ydata()[0] for line in whole if line.get_ydata()[0] == line.get_ydata()[1]}
    found = {}
    for line in axis.lines:
        if len(line.get_xdata()) == 1:
            (x,), (y,) = line.get_data()
            found[names[round(y)]] = (x, y in ends)
    return found


def levels(axis) -> list[float]:
    """Where vertical lines stand."""
    lines = [line for line in axis.lines if list(line.get_ydata()) == [0, 1]]
    return [line.get_xdata()[0] for line in lines if len(set(line.get_xdata())) == 1]
