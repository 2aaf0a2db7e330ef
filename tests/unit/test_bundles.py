"""Bundles: whatever the chunks, each token sees its row up to itself, and its prompt to the end."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.bundles import Chunks, make_bundles


@st.composite
def forwards(draw):
    """Rows of a forward in any order, what they hold and get, and the prompts they continue; some prompts are empty."""
    copies = draw(st.integers(1, 4))
    lengths = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=6)))
    rows = draw(st.lists(st.integers(0, copies * len(lengths) - 1), min_size=1, unique=True))
    counts = draw(st.lists(st.integers(1, 7), min_size=len(rows), max_size=len(rows)))
    held = draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    rows = np.array(rows)
    return Chunks(rows, np.array(counts), np.array(held), rows // copies, lengths[rows // copies])


@given(forwards(), st.integers(1, 5))
def test_each_token_sees_its_row_up_to_itself_and_its_prompt(given, most):
    rows, counts, held, prompts, lengths = (getattr(given, f.name) for f in fields(given))
    order, bundles = make_bundles(given, most=most, device=torch.device("cpu"))
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert len(bundles) <= most + 1
    flat = [(i, offset) for i in order for offset in range(counts[i])]
    assert [b.start for b in bundles] == [0, *(b.stop for b in bundles[:-1])]
    assert bundles[-1].stop == len(flat)
    for bundle in bundles:
        tokens = flat[bundle.start : bundle.stop]
        of_slab, of_prompts = (torch.arange(99)[which] for which in (bundle.rows, bundle.prompts))
        cells = np.arange(len(tokens)) if bundle.by_row.cells is None else bundle.by_row.cells.numpy()
        for (i, offset), cell in zip(tokens, cells, strict=True):
            row, column = divmod(int(cell), bundle.by_row.width)
            assert of_slab[row] == rows[i]
            assert of_prompts[bundle.whose[row]] == prompts[i]
            assert bundle.seen[row, column].nonzero().flatten().tolist() == list(range(held[i] + offset + 1))
            assert bundle.prompt_seen[bundle.whose[row]].sum() == lengths[i]
        assert (bundle.by_prompt is None) == (bundle.prompt_end == 0)
        if bundle.by_prompt is not None:
            cells = np.arange(len(tokens)) if bundle.by_prompt.cells is None else bundle.by_prompt.cells.numpy()
            found = [int(of_prompts[cell // bundle.by_prompt.width]) for cell in cells]
            assert found == [prompts[i] for i, _ in tokens]
            # A query with nothing to look at would have no softmax.
            assert bundle.prompt_seen.any(dim=1).all()


@given(forwards())
def test_a_table_gives_back_what_was_spread_over_it(given):
    _, bundles = make_bundles(given, most=3, device=torch.device("cpu"))
    for bundle in bundles:
        states = torch.randn(bundle.stop - bundle.start, 2, 3, 4)
        for layout in filter(None, (bundle.by_row, bundle.by_prompt)):
            assert layout.spread(states).shape == (layout.rows, 2, layout.width * 3, 4)
            assert torch.equal(layout.gather(layout.spread(states), 3), states)
