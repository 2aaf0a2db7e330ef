"use strict";
// The embedded analysis and small readers of it. Text from the file reaches the page through textContent only.
const DATA = JSON.parse(document.getElementById("data").textContent);
const COLUMNS = DATA.columns, TEXTS = DATA.texts, STEPS = DATA.steps;

// Rows of every group and trajectory: the steps stand in (group, trajectory, t) order.
let nextRow = 0;
for (const group of DATA.groups) {
  group.first = nextRow;
  for (const trajectory of group.trajectories) { trajectory.first = nextRow; nextRow += trajectory.steps; }
  group.last = nextRow;
}
const N = nextRow;
const GROUP_OF = new Int32Array(N), TRAJECTORY_OF = new Int32Array(N), T_OF = new Int32Array(N);
DATA.groups.forEach((group, g) => group.trajectories.forEach((trajectory, k) => {
  for (let t = 0; t < trajectory.steps; t++) {
    GROUP_OF[trajectory.first + t] = g; TRAJECTORY_OF[trajectory.first + t] = k; T_OF[trajectory.first + t] = t;
  }
}));
const LOOPS = new Set(STEPS.loop), UNPARSED = new Set(STEPS.unparsed);
const GROUP_BY_ID = new Map(DATA.groups.map((group, g) => [group.id, g]));
const FEATURE_RECIPES = Object.keys(DATA.credit_by_eps[0].credit);

const state = { recipe: "bipace", eps: DATA.credit_by_eps.findIndex((e) => e.eps === DATA.options.eps), selected: -1, search: "" };

function creditOf(recipe) {
  return FEATURE_RECIPES.includes(recipe) ? DATA.credit_by_eps[state.eps].credit[recipe] : DATA.credit[recipe];
}
function valuesOf(recipe) { return COLUMNS[creditOf(recipe).value]; }
function text(index) { return TEXTS[index]; }

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  for (const child of children) made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return made;
}
function number(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return (size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)))).replace("-", "−");
}
function signed(value) { return value > 0 ? "+" + number(value) : number(value); }
function percent(value) { return value === undefined ? "–" : (100 * value).toFixed(1) + " %"; }
function table(target, head, rows, textColumns) {
  const cell = (tag, value, i) => element(tag, (textColumns || [0]).includes(i) ? { class: "text" } : {}, value);
  target.replaceChildren(
    element("thead", {}, element("tr", {}, ...head.map((v, i) => cell("th", v, i)))),
    element("tbody", {}, ...rows.map((row) => element("tr", row.attributes || {}, ...(row.cells || row).map((v, i) => cell("td", v, i))))),
  );
  return target;
}
