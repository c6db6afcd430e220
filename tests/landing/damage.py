"""Damaged files, for fuzzing: valid content, and random harm to its bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, contents: Sequence[bytes], near_end: int = 0) -> bytes:
    """One of the contents with up to eight harms: bytes changed, cut out, doubled, or all after a
    place lost. near_end: harm only so many of the last bytes, where a footer is; 0 for all."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 8))):
        if not content:
            break
        begin = max(0, len(content) - near_end) if near_end else 0
        place = draw(st.integers(begin, len(content) - 1))
        span = draw(st.integers(1, 16))
        match draw(st.sampled_from(["change", "change", "flip", "cut", "double", "end"])):
            case "change":
                content[place] = draw(st.integers(0, 255))
            case "flip":
                content[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del content[place : place + span]
            case "double":
                content[place:place] = content[place : place + span]
            case "end":
                del content[place:]
    return bytes(content)
