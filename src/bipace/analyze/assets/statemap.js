// A prompt group as one graph: equal states are one node, so that it shows where members part and what each branch earned.
// Nothing here touches the page.

// Labels of the states of a group's rows: equal text, or a cluster of the chosen radius.
function stateLabels(group, kind) {
  const block = blocks[group.block], column = kind === "text" ? stepTerm(block.credit.gigpo).cluster : block.credit_by_eps[state.eps].cluster;
  return block.columns[column].slice(group.first - block.first, group.last - block.first);
}
function mean(values) { return values.reduce((sum, v) => sum + v, 0) / values.length; }

// States and moves. A node knows its first row, its members, its visits; a move who made it.
function foldGroup(group, kind) {
  const labels = stateLabels(group, kind), nodes = new Map(), moves = new Map();
  const node = (key, row, t) => { if (!nodes.has(key)) nodes.set(key, { key, rows: [row], members: new Set(), visits: 0, t, end: null, last: row }); return nodes.get(key); };
  const move = (from, to, k, row) => {
    const key = from + ">" + to;
    if (!moves.has(key)) moves.set(key, { from, to, members: new Set(), rows: [] });
    moves.get(key).members.add(k);
    moves.get(key).rows.push(row);
  };
  group.trajectories.forEach((trajectory, k) => {
    for (let t = 0; t < trajectory.steps; t++) {
      const row = trajectory.first + t, key = "s" + labels[row - group.first], found = node(key, row, t);
      found.members.add(k);
      found.visits++;
      found.t = Math.min(found.t, t);
      const next = t + 1 < trajectory.steps ? "s" + labels[row + 1 - group.first] : "end" + trajectory.outcome;
      if (t + 1 === trajectory.steps) Object.assign(node(next, row, Infinity), { end: trajectory.outcome }).members.add(k);
      if (next !== key) move(key, next, k, row);
    }
  });
  return contract(group, nodes, moves);
}

// A chain of states that the same members pass one after the other, with no other way in or out, is one node.
function contract(group, nodes, moves) {
  const out = new Map(), into = new Map(), heads = new Map();
  for (const m of moves.values()) { out.set(m.from, [...(out.get(m.from) || []), m]); into.set(m.to, [...(into.get(m.to) || []), m]); }
  const follows = (a) => {
    const ways = out.get(a.key) || [];
    if (ways.length !== 1) return null;
    const b = nodes.get(ways[0].to);
    return b.end === null && into.get(b.key).length === 1 && b.members.size === a.members.size && b.key !== a.key && b.t > a.t ? b : null;
  };
  for (const start of [...nodes.values()].filter((n) => n.end === null).sort((x, y) => x.t - y.t)) {
    if (heads.has(start.key)) continue;
    heads.set(start.key, start);
    for (let next = follows(start), tail = start; next && !heads.has(next.key); tail = next, next = follows(tail)) {
      heads.set(next.key, start);
      start.rows.push(...next.rows);
      start.visits += next.visits;
      start.length = (start.length || 1) + 1;
    }
  }
  const name = (key) => (heads.has(key) ? heads.get(key).key : key), kept = new Map();
  for (const n of nodes.values()) if (name(n.key) === n.key) kept.set(n.key, { ...n, length: n.length || 1, earned: mean([...n.members].map((k) => group.trajectories[k].outcome)) });
  const edges = [...moves.values()].map((m) => ({ ...m, from: name(m.from), to: name(m.to) })).filter((m) => m.from !== m.to)
    .map((m) => ({ ...m, earned: mean([...m.members].map((k) => group.trajectories[k].outcome)) }));
  return { nodes: kept, edges };
}

// Column of each node (longest way from a start, moves back to an earlier state left out) and its place in the column.
function layOut({ nodes, edges }) {
  const order = [...nodes.values()].sort((a, b) => a.t - b.t || a.key.localeCompare(b.key)), position = new Map(order.map((n, i) => [n.key, i]));
  const forward = edges.filter((e) => position.get(e.from) < position.get(e.to)), rank = new Map(order.map((n) => [n.key, 0]));
  const outOf = new Map();
  for (const e of forward) outOf.set(e.from, [...(outOf.get(e.from) || []), e.to]);
  for (const n of order) for (const to of outOf.get(n.key) || []) rank.set(to, Math.max(rank.get(to), rank.get(n.key) + 1));
  const furthest = Math.max(...rank.values());
  for (const n of order) if (n.end !== null) rank.set(n.key, furthest);
  const columns = Array.from({ length: furthest + 1 }, () => []);
  for (const n of order) columns[rank.get(n.key)].push(n.key);
  const place = new Map();
  const settle = (column) => column.forEach((key, i) => place.set(key, i - (column.length - 1) / 2));
  columns.forEach(settle);
  const near = new Map(order.map((n) => [n.key, []]));
  for (const e of forward) { near.get(e.from).push(e.to); near.get(e.to).push(e.from); }
  for (let sweep = 0; sweep < 6; sweep++) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const pull = new Map(column.map((key) => [key, near.get(key).length ? mean(near.get(key).map((other) => place.get(other))) : place.get(key)]));
      column.sort((a, b) => pull.get(a) - pull.get(b));
      settle(column);
    }
  }
  return { rank, place, columns, back: edges.filter((e) => position.get(e.from) >= position.get(e.to)) };
}

// States in which members took different actions at their first visit, and what each action's members earned.
function partings(group, kind) {
  const labels = stateLabels(group, kind), block = blocks[group.block], states = new Map();
  group.trajectories.forEach((trajectory, k) => {
    const seen = new Set();
    for (let t = 0; t < trajectory.steps; t++) {
      const row = trajectory.first + t, label = labels[row - group.first];
      if (seen.has(label)) continue;
      seen.add(label);
      if (!states.has(label)) states.set(label, { row, branches: new Map(), members: 0 });
      const found = states.get(label), action = block.steps.action_label[row - block.first];
      if (!found.branches.has(action)) found.branches.set(action, { row, members: [] });
      found.branches.get(action).members.push(k);
      found.members++;
    }
  });
  const parted = [...states.values()].filter((s) => s.branches.size > 1).map((s) => {
    const branches = [...s.branches.values()].map((b) => ({ ...b, earned: mean(b.members.map((k) => group.trajectories[k].outcome)) })).sort((a, b) => b.earned - a.earned);
    return { row: s.row, members: s.members, branches, gap: branches[0].earned - branches[branches.length - 1].earned };
  });
  return parted.sort((a, b) => b.gap * b.members - a.gap * a.members || b.members - a.members);
}
