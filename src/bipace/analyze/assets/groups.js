// The prompt groups: trajectories as rows of coloured steps. Groups are added in pages and filled when they come near the screen.
const list = document.getElementById("list"), PAGE = 60;
let shownGroups = [], built = 0;
const filler = new IntersectionObserver((entries) => entries.forEach((e) => { if (e.isIntersecting) fill(e.target); }), { rootMargin: "600px" });
const TEXT_LOWER = new Map();

function lower(index) {
  if (!TEXT_LOWER.has(index)) TEXT_LOWER.set(index, text(index).toLowerCase());
  return TEXT_LOWER.get(index);
}
function rowMatches(row, query) { return [STEPS.observation, STEPS.response, STEPS.action].some((column) => lower(column[row]).includes(query)); }
function groupMatches(group, query) {
  if (!query || lower(group.task).includes(query) || group.trajectories.some((t) => lower(t.name).includes(query))) return true;
  for (let row = group.first; row < group.last; row++) if (rowMatches(row, query)) return true;
  return false;
}
function taskTitle(group) { const name = text(group.task); return name.length < 8 ? "task " + name : name; }
const FILTERS = {
  all: () => true, varied: (g) => !g.flat, flat: (g) => g.flat && !g.lone, lone: (g) => g.lone,
  duplicate: (g) => g.trajectories.some((t) => t.duplicate),
  loop: (g) => { for (let r = g.first; r < g.last; r++) if (LOOPS.has(r)) return true; return false; },
};
function difference(group) {
  const a = valuesOf("grpo"), b = valuesOf("bipace");
  let sum = 0;
  for (let r = group.first; r < group.last; r++) sum += Math.abs(a[r] - b[r]);
  return sum / Math.max(group.last - group.first, 1);
}
const ORDERS = { file: null, differ: difference, long: (g) => g.last - g.first };

function listGroups() {
  const query = state.search.trim().toLowerCase(), filter = FILTERS[document.getElementById("filter").value], by = ORDERS[document.getElementById("sort").value];
  shownGroups = DATA.groups.filter((g) => filter(g) && groupMatches(g, query));
  if (by) { const key = new Map(shownGroups.map((g) => [g, by(g)])); shownGroups.sort((a, b) => key.get(b) - key.get(a)); }
  document.getElementById("count").textContent = shownGroups.length + " of " + DATA.groups.length + " groups" + (query ? " match “" + query + "”" : "");
  filler.disconnect();
  list.replaceChildren();
  built = 0;
  showMore();
}

function showMore() {
  for (const group of shownGroups.slice(built, built + PAGE)) list.append(shell(group));
  built = Math.min(built + PAGE, shownGroups.length);
  document.getElementById("more").hidden = built >= shownGroups.length;
}

function shell(group) {
  const made = element("article", { class: "group", id: "group-" + group.id, style: "min-height:" + (62 + 24 * group.trajectories.length) + "px" });
  made.group = group;
  filler.observe(made);
  return made;
}

function fill(article) {
  if (article.childElementCount) return;
  filler.unobserve(article);
  const group = article.group, query = state.search.trim().toLowerCase();
  const facts = [group.trajectories.length + " trajectories", group.last - group.first + " steps"];
  if (group.lone) facts.push("alone"); else if (group.flat) facts.push("no reward variance");
  const map = element("button", { type: "button", class: "show-map", "aria-expanded": "false", onclick: () => toggleMap(article) }, "Map of states");
  article.append(element("h3", {}, taskTitle(group)), element("p", { class: "quiet" }, facts.join(" · ") + " ", map));
  for (const trajectory of group.trajectories) {
    const cells = [];
    for (let t = 0; t < trajectory.steps; t++) {
      const row = trajectory.first + t;
      cells.push(element("button", { type: "button", class: "cell" + (query && rowMatches(row, query) ? " hit" : ""), "data-row": row, tabindex: row === group.first ? "0" : "-1" }));
    }
    article.append(element("div", { class: "row" }, element("span", { class: "label", title: text(trajectory.name) },
      "outcome " + number(trajectory.outcome) + (trajectory.duplicate ? " · copy" : "")), element("div", { class: "cells" }, ...cells)));
  }
  paint(article);
}

function paint(article) {
  const values = valuesOf(state.recipe), limit = scaleOf(state.recipe);
  const colours = { zero: css("--zero"), plus: css("--plus"), minus: css("--minus") };
  for (const cell of article.querySelectorAll(".cell")) {
    const row = Number(cell.dataset.row), value = values[row];
    const strength = 0.15 + 0.85 * Math.min(Math.abs(value) / limit, 1);
    cell.style.backgroundColor = value === 0 ? colours.zero : "rgba(" + (value > 0 ? colours.plus : colours.minus) + ", " + strength + ")";
    cell.dataset.value = value;
    cell.setAttribute("aria-label", "step " + T_OF[row] + ", advantage " + signed(value));
    cell.setAttribute("aria-pressed", String(row === state.selected));
  }
}

function paintAll() {
  for (const article of list.children) if (article.childElementCount) paint(article);
  for (const target of document.querySelectorAll(".map")) drawMap(target, target.group, target.by.value);
  if (state.selected >= 0) openStep(state.selected, false);
}

function toggleMap(article) {
  const old = article.querySelector(".map-box");
  const open = !old;
  article.querySelector(".show-map").setAttribute("aria-expanded", String(open));
  if (old) { old.remove(); return; }
  const target = element("div", { class: "map" });
  const by = element("select", { "aria-label": "Colour the map by" }, element("option", { value: "cluster" }, "cluster"), element("option", { value: "value" }, "advantage"));
  target.group = article.group;
  target.by = by;
  by.addEventListener("change", () => drawMap(target, article.group, by.value));
  article.append(element("div", { class: "map-box" }, element("label", { class: "quiet" }, "States of this group in two principal coordinates, coloured by ", by), target));
  drawMap(target, article.group, by.value);
}

function markSelected(scroll) {
  const row = state.selected, group = row < 0 ? null : DATA.groups[GROUP_OF[row]];
  if (group && !document.getElementById("group-" + group.id)) reveal(group);
  const peers = new Set();
  if (group) {
    const terms = creditOf(state.recipe).terms.filter((term) => term.unit === "step");
    if (terms.length) {
      const cluster = COLUMNS[terms[0].cluster];
      for (let r = group.first; r < group.last; r++) if (r !== row && cluster[r] === cluster[row]) peers.add(r);
    }
  }
  for (const cell of document.querySelectorAll(".cell")) {
    const r = Number(cell.dataset.row);
    cell.setAttribute("aria-pressed", String(r === row));
    cell.classList.toggle("peer", peers.has(r));
  }
  for (const target of document.querySelectorAll(".map")) drawMap(target, target.group, target.by.value);
  if (scroll && group) document.getElementById("group-" + group.id).scrollIntoView({ block: "nearest" });
}

function reveal(group) {
  if (!shownGroups.includes(group)) {
    document.getElementById("filter").value = "all";
    document.getElementById("search").value = state.search = "";
    listGroups();
  }
  while (!document.getElementById("group-" + group.id)) showMore();
  fill(document.getElementById("group-" + group.id));
}

function goTo(g, place) {
  const group = DATA.groups[g];
  reveal(group);
  document.getElementById("group-" + group.id).scrollIntoView({ block: "start" });
  const trajectory = group.trajectories.find((t) => text(t.name) === place.trajectory);
  if (trajectory) openStep(trajectory.first + (place.t || 0), false);
}
