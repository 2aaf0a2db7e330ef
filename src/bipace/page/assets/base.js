"use strict";
// The embedded data, elements, numbers, tables and the theme. Text reaches the page through text nodes and attributes only.
const DATA = JSON.parse(document.getElementById("data").textContent);

function byId(id) { return document.getElementById(id); }
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
function percent(value) { return value === undefined || value === null ? "–" : (100 * value).toFixed(1) + " %"; }
function share(value, exact) { return exact ? percent(value) : Number((100 * value).toPrecision(4)) + " %"; }

// A head is a word, or {label, why}: what the column means, as a tooltip and in a list below the table.
// On a narrow screen a row becomes a card; each cell then bears its column's name.
function table(target, head, rows, textColumns) {
  const names = head.map((h) => (typeof h === "object" ? h : { label: h }));
  const cell = (tag, value, i, extra) => element(tag, { ...((textColumns || [0]).includes(i) ? { class: "text" } : {}), ...extra }, value);
  target.classList.add("cards");
  target.replaceChildren(
    element("thead", {}, element("tr", {}, ...names.map((h, i) => cell("th", h.label, i, { scope: "col", ...(h.why ? { title: h.why } : {}) })))),
    element("tbody", {}, ...rows.map((row) => element("tr", row.attributes || {}, ...(row.cells || row).map((v, i) => cell("td", v, i, { "data-head": names[i] ? names[i].label : "" }))))),
  );
  explain(target, names.filter((h) => h.why));
  return target;
}
function explain(target, heads) {
  const box = target.closest(".scroll");
  if (!box || !box.parentNode) return;
  const old = box.nextElementSibling;
  if (old && old.classList.contains("heads")) old.remove();
  if (heads.length) box.after(element("details", { class: "heads" }, element("summary", {}, "What the columns mean"),
    element("dl", {}, ...heads.flatMap((h) => [element("dt", {}, h.label), element("dd", {}, h.why)]))));
}

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// The choice of light or dark outlives a reload where the browser keeps anything for a file.
function keep(name, value) { try { localStorage.setItem("bipace." + name, value); } catch { /* storage is switched off */ } }
function kept(name) { try { return localStorage.getItem("bipace." + name); } catch { return null; } }
function onTheme(redraw) {
  const root = document.documentElement, wanted = kept("theme");
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep("theme", root.dataset.theme);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
// On paper everything that can be folded is open.
addEventListener("beforeprint", () => document.querySelectorAll("details.finding, details.heads").forEach((d) => { d.dataset.was = d.open ? "open" : ""; d.open = true; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-was]").forEach((d) => { d.open = d.dataset.was === "open"; }));
