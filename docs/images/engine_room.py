"""Draw docs/images/engine-room.svg: one decoding forward, and the two caches of a layer.

    python docs/images/engine_room.py

The picture is part of docs/engine-room.md; a test compares it with what this script writes.
"""

from __future__ import annotations

from pathlib import Path

PICTURE = Path(__file__).with_name("engine-room.svg")
WIDTH, HEIGHT = 960, 560
COLOURS = ("#4c78a8", "#f58518", "#54a24b")  # one a prompt
PALE = ("#c9d8ea", "#fcd9b6", "#cbe5c8")
PROMPTS = (9, 6, 8)
ROWS = ((7, 4), (9, 6), (5, 8))  # tokens of the two continuations of each prompt
NEW = ((1, 3), (2, 1), (4, 1))  # of which the last forward wrote so many
CELL = 17


def text(
    x: float, y: float, words: str, size: int = 14, weight: str = "normal", anchor: str = "start"
) -> str:
    font = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {font}>{words}</text>'


def cells(x: float, y: float, count: int, total: int, fill: str, new: int = 0, strong: str = "") -> str:
    """A row of a cache: filled slots, the newest of them dark, and the free ones."""
    colours = [fill] * (count - new) + [strong] * new + ["#ffffff"] * (total - count)
    return "".join(
        f'<rect x="{x + i * CELL}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="{c}" '
        'stroke="#999999"/>'
        for i, c in enumerate(colours)
    )


def box(x: float, y: float, width: float, height: float, title: str, lines: tuple[str, ...]) -> str:
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#f6f6f6" stroke="#555555"/>',
        text(x + 12, y + 22, title, weight="bold"),
    ]
    parts += [text(x + 12, y + 42 + 18 * i, line, size=13) for i, line in enumerate(lines)]
    return "".join(parts)


def arrow(*points: tuple[float, float]) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="#333333" stroke-width="1.6" marker-end="url(#tip)"/>'
    )


def caches() -> str:
    parts = [text(20, 30, "The cache of one layer", size=16, weight="bold")]
    parts += [text(20, 58, "prompts: a row per prompt, written once (prefill)")]
    for i, length in enumerate(PROMPTS):
        parts.append(cells(20, 70 + 24 * i, length, 12, PALE[i]))
    parts += [text(20, 172, "rows: a row per continuation; slot = position behind the prompt")]
    for i, (lengths, new) in enumerate(zip(ROWS, NEW, strict=True)):
        for j in range(2):
            y = 184 + 24 * (2 * i + j)
            parts.append(cells(20, y, lengths[j], 12, PALE[i], new[j], COLOURS[i]))
            parts.append(text(20 + 12 * CELL + 8, y + 13, f"continues prompt {i}", size=12))
    parts += [
        text(20, 352, "dark: written by the forward on the right", size=12),
        text(20, 370, "white: free; never read before it is written", size=12),
        text(20, 388, "no left padding, no holes, no copy of a prompt", size=12),
    ]
    return "".join(parts)


def forward() -> str:
    x, width = 440, 500
    return "".join(
        [
            text(x, 30, "One forward", size=16, weight="bold"),
            box(x, 44, width, 66, "token_batch.py",
                ("what waits in the rows, as one flat list of T tokens,",
                 "with position, cache slot and reading list of each")),
            arrow((690, 110), (690, 130)),
            box(x, 130, width, 84, "transformer_block.py, block after block",
                ("norms, projections, rotary embedding, feed-forward: on the flat list, no padding",
                 "keys and values go into the rows' cache (kv_cache.py)",
                 "in the last block: queries and feed-forward only for the last token of each row")),
            arrow((x, 190), (400, 190), (400, 190), (340, 190)),
            arrow((690, 214), (690, 234)),
            box(x, 234, 244, 122, "prefill_attention.py",
                ("several new tokens a row:", "padded tables by row and by prompt,",
                "two attentions, joined by",
                 "their softmax masses")),
            box(x + 256, 234, 244, 122, "decode_attention.py",
                ("one query a row:", "all rows times their own keys,", "all copies of a prompt times",
                 "the prompt's keys, read once")),
            arrow((340, 262), (400, 262), (440, 262)),
            arrow((690, 356), (690, 376)),
            box(x, 376, width, 48, "sampling.py",
            ("logits of each row's last token; one uniform number a row",)),
            arrow((690, 424), (690, 444)),
            box(x, 444, width, 84, "session.py",
                ("the token waits in its row and rides in the next forward;",
                 "a row whose end token came rests;",
                 "the environment's reply waits too: reply and next token need one forward")),
            arrow((940, 486), (952, 486), (952, 76), (940, 76)),
        ]
    )  # fmt: skip


def draw() -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#333333"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    )
    return f"{head}{caches()}{forward()}</svg>\n".replace("><", ">\n<")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
