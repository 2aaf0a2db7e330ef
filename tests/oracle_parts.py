"""What the oracles are made of: exact arithmetic, returns, action keys and clusterings, as plain loops.

Nothing here imports bipace or numpy; `oracles.py` says what a row is.
"""

from __future__ import annotations

import binascii
import difflib
import math
from fractions import Fraction

TOLERANCE = 1e-6


# ---- arithmetic
# ----------------------------------------------------------------------------------------------------


def mean(values):
    return float(sum(Fraction(v) for v in values) / len(values))


def deviation(values, ddof):
    """Standard deviation; 0 where it is not defined."""
    if len(values) <= ddof:
        return 0.0
    exact = [Fraction(v) for v in values]
    centre = sum(exact) / len(exact)
    return math.sqrt(float(sum((v - centre) ** 2 for v in exact) / (len(exact) - ddof)))


# ---- returns
# -------------------------------------------------------------------------------------------------------


def same_trajectory(a, b):
    return a["task"] == b["task"] and a["trajectory"] == b["trajectory"]


def trajectory_return(rows):
    """Undiscounted sum of rewards of the row's trajectory."""
    return [float(sum(Fraction(r["reward"]) for r in rows if same_trajectory(r, row))) for row in rows]


def return_to_go(rows, gamma=0.95):
    """sum over the later steps (this one included) of gamma^(t' - t) r_t'."""
    out = []
    for row in rows:
        later = [r for r in rows if same_trajectory(r, row) and r["t"] >= row["t"]]
        later.sort(key=lambda r: r["t"], reverse=True)
        value = 0.0
        for r in later:
            value = r["reward"] + gamma * value
        out.append(value)
    return out


# ---- action keys
# ---------------------------------------------------------------------------------------------------


def action_tag(response):
    """Text of the first complete <action>...</action>, stripped, lower-cased; without one the whole
    response.
    """
    opening, closing = "<action>", "</action>"
    for start in range(len(response)):
        if response[start : start + len(opening)].lower() != opening:
            continue
        inside = start + len(opening)
        for end in range(inside, len(response)):
            if response[end : end + len(closing)].lower() == closing:
                return response[inside:end].strip().lower()
        break
    return response.strip().lower()


def first_word(response):
    words = action_tag(response).split()
    return words[0] if words else ""


def tag_verb(response):
    """Scan for `<name>`; a pair is complete with its `</name>` in any letter case, and what it holds is
    passed over.
    """
    start = 0
    while start < len(response):
        end = response.find(">", start)
        if response[start] != "<" or end < 0:
            start += 1
            continue
        name = response[start + 1 : end].lower()
        good = name[:1].isalpha() and all(c.isalnum() or c in "_-" for c in name)
        close = response.lower().find(f"</{name}>", end) if good else -1
        if close < 0:
            start += 1
        elif name in ("think", "thinking", "thought", "reasoning"):
            start = close + len(name) + 3
        else:
            return name
    return response.strip().lower()


def executed(response):
    """As `action_tag`, in the letters of the response."""
    low = response.lower()
    start = low.find("<action>")
    end = low.find("</action>", start + 8) if start >= 0 else -1
    return (response[start + 8 : end] if end >= 0 else response).strip()


def same_execution(a, b, refused):
    """Of two (text, executed command, valid): did the environment do the same?"""

    def done(step):
        text, command, valid = step
        return command if command is not None else (text.strip() if valid else None)

    if (done(a) is None) != (done(b) is None):
        return False
    if done(a) is not None:
        return done(a) == done(b)
    return refused == "one" or a[0].lower().split() == b[0].lower().split()


def first_n(tokens, n=8):
    key = []
    for token in tokens:
        if len(key) < n:
            key.append(token)
    return tuple(key)


# ---- clusterings: a list of labels, equal label = peers
# ------------------------------------------------------------


def visit_order(rows):
    return sorted(range(len(rows)), key=lambda i: (rows[i]["task"], rows[i]["trajectory"], rows[i]["t"]))


def by_prompt_group(rows):
    return [row["task"] for row in rows]


def by_observation(rows):
    return [(row["task"], row["observation"]) for row in rows]


def history(rows, row, k):
    """The row's last k observations, the current one last; None where the trajectory is not that old."""
    if row["t"] < k - 1:
        return None
    wanted = range(row["t"] - k + 1, row["t"] + 1)
    return tuple(
        next(r["observation"] for r in rows if same_trajectory(r, row) and r["t"] == t) for t in wanted
    )


def by_history(rows, k=1):
    """Equal last k observations in one prompt group; a row with a shorter history is alone."""
    out = []
    for i, row in enumerate(rows):
        past = history(rows, row, k)
        out.append(("alone", i) if past is None else (row["task"], past))
    return out


def by_similarity(rows, ratio=0.95):
    """First cluster of the prompt group whose first member's text is similar enough; the first member never
    moves.
    """
    labels = [None] * len(rows)
    leaders = []  # (task, text)
    for i in visit_order(rows):
        text = rows[i]["observation"]
        for number, (task, leader) in enumerate(leaders):
            similar = difflib.SequenceMatcher(None, leader, text).ratio() >= ratio
            if task == rows[i]["task"] and similar:
                labels[i] = number
                break
        else:
            labels[i] = len(leaders)
            leaders.append((rows[i]["task"], text))
    return labels


def unit(vector):
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 else [0.0 for _ in vector]


def cosine_distance(u, v):
    """1 - u.v of unit vectors; a zero vector is at distance 1 from everything."""
    return 1.0 - math.fsum(x * y for x, y in zip(u, v, strict=True))


def greedy_cosine(vectors, eps, centroid="mean"):
    """Labels of one prompt group's vectors in visit order.

    Join the nearest centroid if its distance is at most eps (tolerance 1e-6), else open a cluster. Distances
    less than the tolerance apart are a tie, which the oldest cluster wins. Centroid: the members' mean scaled
    to length 1, or the first member.
    """
    labels, members = [], []
    for vector in vectors:
        u = unit(vector)
        distances = []
        for cluster in members:
            centre = cluster[0]
            if centroid == "mean":
                centre = unit([math.fsum(column) for column in zip(*cluster, strict=True)])
            distances.append(cosine_distance(u, centre))
        nearest = None
        for number, distance in enumerate(distances):
            if distance < min(distances) + TOLERANCE:
                nearest = number
                break
        if nearest is not None and distances[nearest] <= eps + TOLERANCE:
            members[nearest].append(u)
            labels.append(nearest)
        else:
            labels.append(len(members))
            members.append([u])
    return labels


def by_features(rows, eps=0.1, centroid="mean"):
    labels = [None] * len(rows)
    for task in {row["task"] for row in rows}:
        group = [i for i in visit_order(rows) if rows[i]["task"] == task]
        found = greedy_cosine([rows[i]["feature"] for i in group], eps, centroid)
        for i, number in zip(group, found, strict=True):
            labels[i] = (task, number)
    return labels


def ngram_vector(text, n=3, width=1024):
    """Counts of character n-grams by CRC-32; lower case, blanks as one; a short text is one n-gram."""
    plain = " ".join(text.lower().split())
    grams = [plain[i : i + n] for i in range(len(plain) - n + 1)] or ([plain] if plain else [])
    vector = [0.0] * width
    for gram in grams:
        vector[binascii.crc32(gram.encode()) % width] += 1.0
    return vector


def by_ngrams(rows, eps=0.1, n=3, centroid="mean"):
    return by_features(
        [{**row, "feature": ngram_vector(row["observation"], n)} for row in rows], eps, centroid
    )


def whitened(rows, directions):
    """Rows whose features are unit vectors without their mean and their leading principal directions.

    Each direction is found by power iteration on what the ones before it left.
    """
    vectors = [unit(row["feature"]) for row in rows]
    centre = [math.fsum(column) / len(rows) for column in zip(*vectors, strict=True)]
    vectors = [[x - c for x, c in zip(vector, centre, strict=True)] for vector in vectors]
    for _ in range(directions):
        axis = unit([1.0 + 0.1 * i for i in range(len(centre))])
        for _ in range(2000):
            weights = [math.fsum(x * a for x, a in zip(vector, axis, strict=True)) for vector in vectors]
            pulled = [
                math.fsum(w * vector[d] for w, vector in zip(weights, vectors, strict=True))
                for d in range(len(axis))
            ]
            axis = unit(pulled)
        weights = [math.fsum(x * a for x, a in zip(vector, axis, strict=True)) for vector in vectors]
        vectors = [
            [x - w * a for x, a in zip(vector, axis, strict=True)]
            for w, vector in zip(weights, vectors, strict=True)
        ]
    return [{**row, "feature": vector} for row, vector in zip(rows, vectors, strict=True)]
