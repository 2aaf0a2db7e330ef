// The prompt groups: trajectories as rows of coloured steps. Groups are added in pages; their steps are unpacked and drawn
// when they come near the screen.
const list = byId("list"), PAGE = 40;
let shownGroups = [], built = 0, listing = 0;
const filler = new IntersectionObserver((entries) => entries.forEach((e) => { if (e.isIntersecting) fill(e.target); }), { rootMargin: "600px" });

const FILTERS = {
  all: () => true, varied: (g) => !g.flat, flat: (g) => g.flat && !g.lone, lone: (g) => g.lone,
  duplicate: (g) => g.trajectories.some((t) => t.duplicate), loop: (g) => g.loop,
};
// What teaches most comes first: groups with variance in which step credit differs most from the outcome's, lone ones last.
const ORDERS = { teach: (g) => (g.lone ? -2 : g.flat ? -1 : 0) * 1e6 + g.differ, file: null, differ: (g) => g.pair, long: (g) => g.last - g.first };

function lower(block, index) { return (block.lower[index] ??= block.texts[index].toLowerCase()); }
function rowMatches(row, query) {
  const block = blockOf(row), i = row - block.first;
  return ["observation", "response", "action"].some((part) => lower(block, block.steps[part][i]).includes(query));
}
function groupMatches(group, query) {
  if (!query || group.task.toLowerCase().includes(query) || group.trajectories.some((t) => t.name.toLowerCase().includes(query))) return true;
  for (let row = group.first; row < group.last; row++) if (rowMatches(row, query)) return true;
  return false;
}
function difference(group) {
  const block = blocks[group.block], a = block.columns[creditIn(block, state.recipe).value], b = block.columns[creditIn(block, state.beside || "grpo").value];
  let sum = 0;
  for (let r = group.first - block.first; r < group.last - block.first; r++) sum += Math.abs(a[r] - b[r]);
  return sum / Math.max(group.last - group.first, 1);
}

async function listGroups() {
  const mine = ++listing, query = state.search.trim().toLowerCase(), filter = FILTERS[state.filter], by = ORDERS[state.sort];
  writeAddress();
  // Texts and advantages of all groups are looked at only for a search, and for the order by difference.
  if (query || state.sort === "differ") await loadAll((n) => { if (mine === listing) byId("count").textContent = "unpacking " + n + " of " + DATA.blocks + " …"; });
  if (mine !== listing) return;
  if (state.sort === "differ") for (const group of GROUPS) group.pair = difference(group);
  const file = state.file === "" ? null : Number(state.file);
  shownGroups = GROUPS.filter((g) => filter(g) && (file === null || g.trajectories.some((t) => t.file === file)) && groupMatches(g, query));
  if (by) shownGroups.sort((a, b) => by(b) - by(a));
  byId("count").textContent = shownGroups.length + " of " + GROUPS.length + " groups" + (query ? " match “" + query + "”" : "");
  filler.disconnect();
  list.replaceChildren();
  built = 0;
  showMore();
}
function showMore() {
  for (const group of shownGroups.slice(built, built + PAGE)) list.append(shell(group));
  built = Math.min(built + PAGE, shownGroups.length);
  byId("more").hidden = built >= shownGroups.length;
}
function shell(group) {
  const lines = group.trajectories.reduce((sum, t) => sum + Math.ceil(t.steps / 36), 0);
  const made = element("article", { class: "group", id: "group-" + group.id, style: "min-height:" + (62 + 26 * lines) + "px" });
  made.group = group;
  filler.observe(made);
  return made;
}
async function fill(article) {
  if (article.dataset.filled) return;
  article.dataset.filled = "loading";
  filler.unobserve(article);
  const group = article.group, query = state.search.trim().toLowerCase();
  try { await load(group.block); } catch (error) { article.append(element("p", {}, error.message)); return; }
  const facts = [group.trajectories.length + (group.trajectories.length === 1 ? " trajectory" : " trajectories"), group.last - group.first + " steps"];
  if (group.lone) facts.push("alone"); else if (group.flat) facts.push("no reward variance");
  const map = element("button", { type: "button", class: "show-map", "aria-expanded": "false", onclick: () => toggleMap(article) }, "Where members part");
  article.append(element("h3", { title: group.task }, taskTitle(group.task)), element("p", { class: "quiet" }, facts.join(" · ") + " ", map));
  for (const trajectory of group.trajectories) article.append(rowView(trajectory, query));
  article.dataset.filled = "yes";
  paint(article);
}
function rowView(trajectory, query) {
  const cells = [];
  for (let row = trajectory.first; row < trajectory.first + trajectory.steps; row++) {
    cells.push(element("button", { type: "button", class: "cell" + (query && rowMatches(row, query) ? " hit" : ""), "data-row": row, tabindex: row === trajectory.group.first ? "0" : "-1" }));
  }
  const label = element("button", { type: "button", class: "label", title: trajectory.name + ": whole transcript", onclick: () => openStep(trajectory.first, { transcript: true }) },
    element("span", { class: "name" }, trajectory.name), element("span", { class: "quiet" }, "outcome " + number(trajectory.outcome) + (trajectory.duplicate ? " · copy" : "")));
  return element("div", { class: "row" }, label, element("div", { class: "cells" }, ...cells));
}

// A cell has one colour, or two where a second recipe stands beside the first: the upper half is the first one's.
function paint(article) {
  const block = blocks[article.group.block], beside = state.beside && state.beside !== state.recipe ? state.beside : "", colours = shades();
  const a = block.columns[creditIn(block, state.recipe).value], b = beside ? block.columns[creditIn(block, beside).value] : null;
  for (const cell of article.querySelectorAll(".cell")) {
    const row = Number(cell.dataset.row), value = a[row - block.first], upper = shade(value, limitOf(state.recipe), colours);
    let said = state.recipe + " " + signed(value);
    cell.dataset.value = value;
    if (b) {
      const other = b[row - block.first];
      cell.dataset.beside = other;
      cell.style.background = "linear-gradient(" + upper + " 50%, " + shade(other, limitOf(beside), colours) + " 50%)";
      said += ", " + beside + " " + signed(other);
    } else {
      delete cell.dataset.beside;
      cell.style.background = upper;
    }
    cell.setAttribute("aria-label", "step " + stepOf(row) + ", advantage " + said);
    cell.title = "step " + stepOf(row) + ": " + said;
    cell.setAttribute("aria-pressed", String(row === state.selected));
  }
}
function paintAll() {
  for (const article of list.children) {
    if (article.dataset.filled !== "yes") continue;
    paint(article);
    if (article.querySelector(".map-box")) drawMap(article);
  }
  if (state.selected >= 0) openStep(state.selected, { quiet: true });
}

async function markSelected() {
  const row = state.selected, group = row < 0 ? null : trajectoryOf(row).group, peers = new Set();
  if (group) {
    await reveal(group);
    const block = blocks[group.block], term = stepTerm(creditIn(block, state.recipe));
    if (term) {
      const cluster = block.columns[term.cluster];
      for (let r = group.first; r < group.last; r++) if (r !== row && cluster[r - block.first] === cluster[row - block.first]) peers.add(r);
    }
  }
  for (const cell of document.querySelectorAll(".cell")) {
    const r = Number(cell.dataset.row);
    cell.setAttribute("aria-pressed", String(r === row));
    cell.classList.toggle("peer", peers.has(r));
  }
}
async function reveal(group) {
  if (!shownGroups.includes(group)) {
    Object.assign(state, { search: "", filter: "all", file: "" });
    showControls();
    await listGroups();
  }
  while (!byId("group-" + group.id)) showMore();
  await fill(byId("group-" + group.id));
}
async function goTo(group, place) {
  await reveal(group);
  byId("group-" + group.id).scrollIntoView({ block: "start" });
  const trajectory = place && place.trajectory !== null && group.trajectories.find((t) => t.name === place.trajectory);
  if (trajectory) await openStep(trajectory.first + Math.min(place.t || 0, trajectory.steps - 1));
  else byId("group-" + group.id).querySelector(".cell").focus({ preventScroll: true });
}
