"""Curves and heat maps in SVG; their colours come from the page."""

import math

from matplotlib.ticker import MaxNLocator

from multimodel.training.page import element

WIDTH, HEIGHT = 300, 110
LEFT, RIGHT, TOP, BOTTOM = 42, 292, 8, 90  # of the field that a curve lies in
POINTS = 400  # of a curve at most


def curve(points, name, kind, marks=(), top=None):
    """A line over the steps of a run, from zero upwards.

    Args:
        points: `[(step, value)]`; values that are not finite leave no trace.
        name: what is shown, for those who cannot see it.
        kind: a class of the style sheet, which gives the colour.
        marks: `[(step, text)]`, where something happened.
        top: the largest value of the axis; from the points if None.
    """
    points = [(step, value) for step, value in points if value is not None and math.isfinite(value)]
    if not points:
        return element("p", f"No {name}: no finite value was logged.", class_="muted")
    last = max(step for step, _ in [*points, *marks])
    ticks = MaxNLocator(nbins=3, steps=[1, 2, 5, 10]).tick_values(0, top or max(value for _, value in points) or 1)

    def x(step):
        return round(LEFT + (RIGHT - LEFT) * step / last, 1)

    def y(value):
        return round(BOTTOM - (BOTTOM - TOP) * value / ticks[-1], 1)

    thinned = points[:: len(points) // POINTS + 1]
    thinned += [points[-1]] if thinned[-1] != points[-1] else []
    (first_step, first), (last_step, value) = points[0], points[-1]
    return element(
        "svg",
        element("title", f"{name}: {first:.4g} at step {first_step}, {value:.4g} at step {last_step}"),
        *(part for tick in ticks for part in _gridline(y(tick), f"{tick:.4g}")),
        *(_mark(x(step), text) for step, text in marks),
        element("text", "0", x=LEFT, y=HEIGHT - 5),
        element("text", f"step {last}", x=RIGHT, y=HEIGHT - 5, text_anchor="end"),
        element("polyline", points=" ".join(f"{x(step)},{y(value)}" for step, value in thinned)),
        element("circle", cx=x(last_step), cy=y(value), r=3),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_=f"curve {kind}",
        role="img",
    )


def _gridline(y, label):
    return (
        element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"),
        element("text", label, x=LEFT - 5, y=y + 3.5, text_anchor="end"),
    )


def _mark(x, text):
    return element("line", element("title", text), x1=x, x2=x, y1=TOP, y2=BOTTOM, class_="mark")


def bar(value, baseline, top):
    """How far a score is from 0 to `top`, and a tick where the baseline is; beside the numbers, so without a text."""
    tick = None if baseline is None else element("rect", x=_percent(baseline, top), width=2, height=12, class_="tick")
    return element(
        "svg",
        element("rect", y=3, width="100%", height=6, rx=3, class_="track"),
        element("rect", y=3, width=_percent(value, top), height=6, rx=3, class_="value"),
        tick,
        class_="bar",
        aria_hidden="true",
    )


def _percent(value, top):
    return f"{100 * min(max(value / top, 0), 1):.1f}%"


def heat_strip(values, top, label, texts=None):
    """Cells side by side, as wide as the page gives them, the darker the larger.

    Args:
        values: at least 0.
        top: the value of full colour.
        label: what they are, for those who cannot see it.
        texts: of the cells, if they show one.
    """
    width, cells = 100 / len(values), []
    for i, value in enumerate(values):
        strength = round(min(value / top, 1), 2) if top else 0
        if strength:
            cells.append(
                element("rect", x=f"{i * width:.2f}%", width=f"{width:.2f}%", height="100%", fill_opacity=strength)
            )
        if texts:
            cells.append(element("text", texts[i], x=f"{(i + 0.5) * width:.2f}%", y="50%", dy="0.35em"))
    return element("svg", *cells, class_="heat", role="img", aria_label=label)
