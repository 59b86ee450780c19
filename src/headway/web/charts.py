"""Charts as inline SVG, drawn by the server; colours and sizes are the style sheet's."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 240, 48

_SVG = Markup(
    '<svg class="chart {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
    'aria-label="{}">{}</svg>'
)
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
_PATH = Markup('<path class="{}" d="{}"/>')


def meter(used: float, capacity: float | None, label: str) -> Markup:
    """How full something is, as a bar."""
    part = 0.0 if not capacity else min(1.0, used / capacity)
    state = "full" if part >= 1 else "high" if part >= 0.8 else "some"
    bar = Markup().join(
        [_RECT.format("ground", 0, 0, 100, 6), _RECT.format(state, 0, 0, round(part * 100, 1), 6)]
    )
    return _SVG.format("meter", 100, 6, label, bar)


def shares(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Parts of a whole, as one bar.

    Args:
        parts: the class of each with its size.
        label: what it says, for those who do not see it.
    """
    whole = sum(size for _, size in parts)
    bars: list[Markup] = []
    x = 0.0
    for name, size in parts:
        width = 0.0 if not whole else size * 100 / whole
        if width:
            bars.append(_RECT.format(name, round(x, 2), 0, round(width, 2), 6))
        x += width
    ground = _RECT.format("ground", 0, 0, 100, 6)
    return _SVG.format("meter", 100, 6, label, Markup().join([ground, *bars]))


def bars(
    series: Sequence[tuple[str, Sequence[float | None]]], label: str, *, top: float | None = None
) -> Markup:
    """Values over time, stacked; a gap where one is None.

    Args:
        series: the class of each with its values, oldest first, all of one length.
        label: what it says, for those who do not see it.
        top: the value at the upper edge; None for the largest.
    """
    length = max((len(values) for _, values in series), default=0)
    sums = [sum((values[i] or 0) for _, values in series) for i in range(length)]
    top = max(top or 0, *sums, 1e-9) if sums else 1
    found = [_RECT.format("ground", 0, HEIGHT - 1, WIDTH, 1)]
    each = WIDTH / max(length, 1)
    for i in range(length):
        y = float(HEIGHT)
        for name, values in series:
            high = (values[i] or 0) * (HEIGHT - 2) / top
            if high <= 0:
                continue
            high = max(high, 1)
            y -= high
            found.append(
                _RECT.format(
                    name, round(i * each, 2), round(y, 2), round(each * 0.8, 2), round(high, 2)
                )
            )
    return _SVG.format("bars", WIDTH, HEIGHT, label, Markup().join(found))


def line(
    points: Sequence[tuple[float, float]], label: str, *, span: tuple[float, float], top: float
) -> Markup:
    """A value over time, as steps above filled ground.

    Args:
        points: each moment with its value, oldest first.
        label: what it says, for those who do not see it.
        span: the moments at the left and right edge.
        top: the value at the upper edge.
    """
    first, last = span
    wide, top = max(last - first, 1e-9), max(top, 1e-9)
    path: list[str] = []
    for at, value in points:
        x = round(max(0.0, (at - first) / wide) * WIDTH, 1)
        y = round(HEIGHT - min(1.0, value / top) * (HEIGHT - 2), 1)
        path.append(f"H{x}V{y}" if path else f"M{x} {HEIGHT}V{y}")
    if path:
        path.append(f"H{WIDTH}V{HEIGHT}Z")
    return _SVG.format("line", WIDTH, HEIGHT, label, _PATH.format("area", "".join(path)))
