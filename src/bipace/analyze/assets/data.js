// The analysis as the page reads it: groups and trajectories at once, the steps of a block of groups when they are needed.
// A row is the number of a step over all groups shown, in (group, trajectory, t) order.
const GROUPS = [], GROUP_BY_ID = new Map(), BLOCK_FIRST = [], BY_NAME = new Map();
async function readIndex() {
  let rows = 0;
  for (const found of await unpack("index")) {
    const trajectories = found.trajectories.map(([name, outcome, steps, duplicate, file]) => ({ name, outcome, steps, duplicate: Boolean(duplicate), file }));
    const group = { ...found, trajectories, first: rows };
    if (BLOCK_FIRST[group.block] === undefined) BLOCK_FIRST[group.block] = rows;
    trajectories.forEach((trajectory, k) => {
      Object.assign(trajectory, { first: rows, group, index: k });
      if (!BY_NAME.has(trajectory.name)) BY_NAME.set(trajectory.name, trajectory);
      rows += trajectory.steps;
    });
    group.last = rows;
    GROUPS.push(group);
    GROUP_BY_ID.set(group.id, group);
  }
}
const FEATURE_RECIPES = Object.keys(DATA.sweep[0]).filter((name) => name in DATA.recipes);
const DEFAULTS = { recipe: "bipace", beside: "", eps: DATA.sweep.findIndex((s) => s.eps === DATA.options.eps), search: "", filter: "all", sort: "teach", file: "" };
const state = { ...DEFAULTS, selected: -1, transcript: false };

// The trajectory of a row: a binary search over first rows.
function last(items, holds) {
  let low = 0, high = items.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (holds(items[middle])) low = middle; else high = middle - 1; }
  return items[low];
}
function trajectoryOf(row) { return last(last(GROUPS, (g) => g.first <= row).trajectories, (t) => t.first <= row); }
function stepOf(row) { return row - trajectoryOf(row).first; }
function stepName(row) { const trajectory = trajectoryOf(row); return trajectory.name + ", step " + (row - trajectory.first); }

const blocks = [], waiting = [];
async function unpack(name) {
  if (!("DecompressionStream" in window)) throw new Error("This browser cannot unpack the steps: Chrome 80, Firefox 113 or Safari 16.4 is needed.");
  const holder = byId("block-" + name), bytes = Uint8Array.from(atob(holder.textContent), (c) => c.charCodeAt(0));
  holder.remove();
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}
function load(index) {
  if (!waiting[index]) waiting[index] = openBlock(index);
  return waiting[index];
}
async function openBlock(index) {
  const data = await unpack(index), first = BLOCK_FIRST[index];
  const made = { ...data, first, loops: new Set(data.steps.loop.map((r) => r + first)), unparsed: new Set(data.steps.unparsed.map((r) => r + first)), lower: [] };
  data.groups.forEach((group) => group.trajectories.forEach((t, k) => Object.assign(GROUP_BY_ID.get(group.id).trajectories[k], { where: t.where, context: data.texts[t.context] })));
  blocks[index] = made;
  return made;
}
async function loadAll(told) {
  for (let index = 0; index < DATA.blocks; index++) {
    if (!blocks[index]) { await load(index); if (told) told(index + 1); }
  }
}
function blockOf(row) { return blocks[trajectoryOf(row).group.block]; }
function creditIn(block, recipe) { return FEATURE_RECIPES.includes(recipe) ? block.credit_by_eps[state.eps].credit[recipe] : block.credit[recipe]; }
function valueOf(recipe, row) { const block = blockOf(row); return block.columns[creditIn(block, recipe).value][row - block.first]; }
function textOf(part, row) { const block = blockOf(row); return block.texts[block.steps[part][row - block.first]]; }
function stepTerm(credit) { return credit.terms.find((term) => term.unit === "step"); }
function limitOf(recipe) { return DATA.limits[recipe][state.eps]; }

function shade(value, limit, colours) {
  if (!value) return colours.zero;
  return "rgba(" + (value > 0 ? colours.plus : colours.minus) + ", " + (0.15 + 0.85 * Math.min(Math.abs(value) / limit, 1)) + ")";
}
function shades() { return { zero: css("--zero"), plus: css("--plus"), minus: css("--minus") }; }
function excerpt(value, most) { const line = value.replace(/\s+/g, " ").trim(); return line.length <= most ? line || "(empty)" : line.slice(0, most - 1) + "…"; }
