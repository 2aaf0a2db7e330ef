// The map of a prompt group and the table of its partings.
const NODE = { width: 136, height: 38, across: 232, down: 54 };

function toggleMap(article) {
  const old = article.querySelector(".map-box");
  article.querySelector(".show-map").setAttribute("aria-expanded", String(!old));
  if (old) { old.remove(); return; }
  const by = element("select", { "aria-label": "Which states count as one" }, element("option", { value: "near" }, "within eps of each other"), element("option", { value: "text" }, "of the same text"));
  const box = element("div", { class: "map-box" }, element("label", { class: "quiet" }, "States are one where they are ", by), element("div", { class: "map-body" }));
  by.addEventListener("change", () => drawMap(article));
  article.append(box);
  drawMap(article);
}
function drawMap(article) {
  const group = article.group, kind = article.querySelector(".map-box select").value, folded = foldGroup(group, kind);
  article.querySelector(".map-body").replaceChildren(element("div", { class: "scroll map", tabindex: "0", role: "region", "aria-label": "Map of states" }, mapSvg(group, folded)),
    element("p", { class: "quiet" }, "A box is a state, with how many members saw it and the mean outcome of those; a line is a move, as thick as its members are many, dashed where it goes back. Colour: above or below the group's mean outcome."),
    partingsView(group, kind));
}
function mapSvg(group, folded) {
  const { rank, place, columns, back } = layOut(folded), most = Math.max(...columns.map((c) => c.length)), returning = new Set(back);
  const x = (key) => 8 + rank.get(key) * NODE.across, y = (key) => 14 + (place.get(key) + (most - 1) / 2) * NODE.down;
  const width = 16 + (columns.length - 1) * NODE.across + NODE.width, height = 28 + (most - 1) * NODE.down + NODE.height;
  const into = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height }), middle = mean(group.trajectories.map((t) => t.outcome));
  const spread = Math.max(...group.trajectories.map((t) => Math.abs(t.outcome - middle)), 1e-9), colours = shades(), ways = new Map();
  for (const e of folded.edges) ways.set(e.from, (ways.get(e.from) || 0) + 1);
  const labels = svg("g", {});
  for (const e of folded.edges) {
    const backwards = returning.has(e), x1 = x(e.from) + NODE.width, y1 = y(e.from) + NODE.height / 2, x2 = x(e.to), y2 = y(e.to) + NODE.height / 2, bend = backwards ? 46 : (x2 - x1) / 2;
    const said = [...new Set(e.rows.map((row) => excerpt(textOf("action", row), 80)))].slice(0, 4).join(" | ") + ": " + e.members.size + " members, mean outcome " + number(e.earned);
    into.append(svg("path", { class: "edge" + (backwards ? " back" : ""), "data-members": e.members.size, "stroke-width": 1 + 5 * e.members.size / group.trajectories.length,
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }, svg("title", {}, said)));
    if (ways.get(e.from) > 1 && !backwards) labels.append(svg("text", { class: "move", x: x1 + 48, y: heightAt(48, x2 - x1, y1, y2) - 3, "text-anchor": "middle" }, excerpt(textOf("action", e.rows[0]), 15)));
  }
  for (const n of folded.nodes.values()) into.append(nodeView(group, n, x(n.key), y(n.key), shade(n.earned - middle, spread, colours)));
  into.append(labels);
  return into;
}
// Height of a move's curve at a distance from its start: x(s) and y(s) of a cubic with level ends.
function heightAt(distance, width, y1, y2) {
  let s = 0;
  while (s < 1 && width * (1.5 * s * (1 - s) ** 2 + 1.5 * s * s * (1 - s) + s ** 3) < distance) s += 0.02;
  return y1 + (y2 - y1) * (3 * s * s - 2 * s ** 3);
}
function nodeView(group, n, x, y, fill) {
  const title = n.end !== null ? "end: outcome " + number(n.end) : n.length > 1 ? n.length + " states in a row" : excerpt(textOf("observation", n.rows[0]), 20);
  const again = n.end === null && n.visits > n.members.size * n.length ? " ↻" : "", facts = n.members.size + " of " + group.trajectories.length + " · mean " + number(n.earned) + again;
  const open = () => openStep(n.rows[0]);
  return svg("g", { class: "node" + (n.end !== null ? " end" : ""), transform: `translate(${x},${y})`, "data-members": n.members.size, "data-earned": n.earned, "data-states": n.length,
    ...(n.end === null ? { tabindex: 0, role: "button", onclick: open, onkeydown: (event) => { if (event.key === "Enter") { event.stopPropagation(); open(); } } } : {}) },
  svg("title", {}, (n.end !== null ? title : excerpt(textOf("observation", n.rows[0]), 300)) + "\nmembers: " + [...n.members].map((k) => group.trajectories[k].name).join(", ")),
  svg("rect", { class: "paper", width: NODE.width, height: NODE.height, rx: 6 }), svg("rect", { width: NODE.width, height: NODE.height, rx: 6, class: "earned", style: "fill:" + fill }),
  svg("text", { x: 7, y: 16 }, title), svg("text", { x: 7, y: 31, class: "facts" }, facts));
}

function partingsView(group, kind) {
  const found = partings(group, kind);
  if (!found.length) return element("p", { class: "no-parting" }, group.trajectories.length > 1 ? "Members never took different actions in the same state: there is no branch to compare." : "One trajectory cannot part from itself.");
  const rows = found.slice(0, 12).flatMap((s) => s.branches.map((b, i) => ({ attributes: i ? {} : { class: "first" }, cells: [
    i ? "" : element("button", { type: "button", class: "link", onclick: () => openStep(s.row) }, excerpt(textOf("observation", s.row), 90)),
    element("button", { type: "button", class: "link", onclick: () => openStep(b.row) }, excerpt(textOf("action", b.row), 90)), b.members.length, number(b.earned), b.members.map((k) => group.trajectories[k].name).join(", ")] })));
  const made = element("table", { class: "partings" });
  const box = element("div", {}, element("h4", {}, "Where members part (" + found.length + (found.length === 1 ? " state" : " states, the widest gap first") + ")"), element("div", { class: "scroll" }, made));
  table(made, [{ label: "state", why: "in which members took different actions at their first visit" }, { label: "action", why: "the branch" }, { label: "members", why: "how many took it" },
    { label: "earned", why: "mean outcome of the members that took it" }, "who"], rows, [0, 1, 4]);
  if (found.length > 12) box.append(element("p", { class: "quiet" }, "and " + (found.length - 12) + " more states"));
  return box;
}
