"""The figures of `apply`, as last kept in the history, as a picture: `make docs`.

Two files, for pages with a light and with a dark background. Every bar begins at 0 and all have one
scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import figures, history
from bench.catalog import DELTA_RS, MERGE, MERGE_OWN_LAYOUT

FOLDER = Path(__file__).parent.parent / "docs" / "images"
GROUPS = {
    "apply-1k": "1,000 changes",
    "apply": "60,000 changes",
    "apply-1m": "1,000,000 changes",
}
OURS = "mirrorlake"
PEERS = {
    "MERGE of delta-rs": [DELTA_RS],
    "MERGE of Delta on Spark": [MERGE_OWN_LAYOUT, MERGE],
}
"""Of each bar the sides of which it shows the first that there is."""

WIDTH, LEFT, BAR, GAP, TITLE = 720, 190, 16, 5, 26


@dataclass(frozen=True)
class Look:
    """Colours of one background."""

    text: str
    faint: str
    ours: str
    peer: str


LOOKS = {
    "light": Look(text="#1f2328", faint="#59636e", ours="#0969da", peer="#afb8c1"),
    "dark": Look(text="#f0f6fc", faint="#9198a1", ours="#4493f8", peer="#656c76"),
}


def pictures(file: Path = history.FILE) -> dict[Path, str]:
    """Path to content."""
    found = seconds(file)
    return {FOLDER / f"apply-{name}.svg": _picture(found, look) for name, look in LOOKS.items()}


def seconds(file: Path = history.FILE) -> dict[str, dict[str, float]]:
    """Name of a comparison to the seconds of each side, those that were kept last."""
    kept, found = figures.last(file), {}
    for name in GROUPS:
        lines = {line["peer"]: line for line in kept[name]}
        shown = {
            bar: lines[next(peer for peer in peers if peer in lines)]
            for bar, peers in PEERS.items()
        }
        ours = next(iter(shown.values()))["ours_seconds"]
        found[name] = {OURS: ours} | {bar: line["peer_seconds"] for bar, line in shown.items()}
    return found


def _picture(found: dict[str, dict[str, float]], look: Look) -> str:
    most = max(value for sides in found.values() for value in sides.values())
    lines, top = [], 10
    for name, label in GROUPS.items():
        lines.append(_text(0, top + 14, label, look.text, bold=True))
        top += TITLE
        for side in (OURS, *PEERS):
            lines += _bar(side, found[name][side], top, most, look)
            top += BAR + GAP
        top += 12
    lines.append(_text(LEFT, top + 6, "seconds, less is better", look.faint))
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 14}" width="{WIDTH}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n{body}\n</svg>\n'
    )


def _bar(side: str, value: float, top: int, most: float, look: Look) -> Iterator[str]:
    length = max(value / most * (WIDTH - LEFT - 70), 1.0)
    colour = look.ours if side == OURS else look.peer
    yield _text(LEFT - 8, top + 13, side, look.text, end=True)
    yield f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>'
    yield _text(LEFT + length + 6, top + 13, figures.seconds(value), look.text)


def _text(
    x: float, y: float, text: str, colour: str, *, bold: bool = False, end: bool = False
) -> str:
    style = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}"{style}{anchor}>{text}</text>'
