"""Prefill batches: whatever the chunks, each token sees its row up to itself, and its prompt to the end."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.prefill_attention import Chunks, prefill_attention


@st.composite
def forwards(draw):
    """Rows of a forward in any order, what they hold and get, and the prompts they continue; some prompts are
    empty.
    """
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
    order, plan = prefill_attention(given, torch.device("cpu"), most)
    batches = plan.batches
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert len(batches) <= most + 1
    flat = [(i, offset) for i in order for offset in range(counts[i])]
    assert [b.start for b in batches] == [0, *(b.stop for b in batches[:-1])]
    assert batches[-1].stop == len(flat)
    for batch in batches:
        tokens = flat[batch.start : batch.stop]
        of_cache, of_prompts = (torch.arange(99)[which] for which in (batch.rows, batch.prompts))
        cells = np.arange(len(tokens)) if batch.by_row.cells is None else batch.by_row.cells.numpy()
        for (i, offset), cell in zip(tokens, cells, strict=True):
            row, column = divmod(int(cell), batch.by_row.width)
            assert of_cache[row] == rows[i]
            assert of_prompts[batch.whose[row]] == prompts[i]
            assert batch.seen[row, column].nonzero().flatten().tolist() == list(range(held[i] + offset + 1))
            assert batch.prompt_seen[batch.whose[row]].sum() == lengths[i]
        assert (batch.by_prompt is None) == (batch.prompt_end == 0)
        if batch.by_prompt is not None:
            cells = np.arange(len(tokens)) if batch.by_prompt.cells is None else batch.by_prompt.cells.numpy()
            found = [int(of_prompts[cell // batch.by_prompt.width]) for cell in cells]
            assert found == [prompts[i] for i, _ in tokens]
            # A query with nothing to look at would have no softmax.
            assert batch.prompt_seen.any(dim=1).all()


@given(forwards())
def test_a_table_gives_back_what_was_put_into_it(given):
    batches = prefill_attention(given, torch.device("cpu"), 3)[1].batches
    for batch in batches:
        states = torch.randn(batch.stop - batch.start, 2, 3, 4)
        for table in filter(None, (batch.by_row, batch.by_prompt)):
            assert table.pad(states).shape == (table.rows, 2, table.width * 3, 4)
            assert torch.equal(table.unpad(table.pad(states), 3), states)
