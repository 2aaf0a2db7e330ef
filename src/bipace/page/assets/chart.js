"use strict";
// Charts as SVG in the page's own colours: lines with bands, dots with intervals, bars. They follow the theme through
// CSS variables, are drawn at the width they have, and drawn again when it changes. Names become text nodes only.
const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "4 2", "1 4", "12 4", "6 2 2 2 2 2"];
const SYMBOLS = ["circle", "square", "diamond", "triangle"];

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value); else made.setAttribute(name, value);
  }
  for (const child of children) made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return made;
}
function colour(i) { return "var(--c" + (i % 8) + ")"; }

// Round values that cut [low, high] into about `count` steps.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1), size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough * 0.999);
  const made = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) made.push(Number((k * step).toPrecision(12)));
  return made;
}
function extent(values, options) {
  let low = Math.min(...values), high = Math.max(...values);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  if (options.zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
  if (low === high) { const pad = Math.abs(low) / 2 || 0.5; low -= options.zero && low === 0 ? 0 : pad; high += pad; }
  const room = 0.05 * (high - low);
  if (!options.zero || low < 0) low -= room;
  high += room;
  // A share is never drawn below 0 or above 1.
  return options.share ? [Math.max(low, 0), Math.min(high, 1)] : [low, high];
}
function scale(domain, range) { return (value) => range[0] + ((value - domain[0]) / (domain[1] - domain[0] || 1)) * (range[1] - range[0]); }
function shortName(name, most) { return name.length <= most ? name : name.slice(0, most - 1) + "…"; }

const drawings = new WeakMap();
const resizer = new ResizeObserver((entries) => { for (const entry of entries) if (drawings.has(entry.target) && entry.contentRect.width !== entry.target.drawnWidth) drawNow(entry.target); });
function draw(target, spec) {
  target.chart = spec;
  drawings.set(target, spec);
  resizer.observe(target);
  drawNow(target);
}
function drawNow(target) {
  const width = target.clientWidth, spec = drawings.get(target);
  if (!width) return;
  target.drawnWidth = width;
  const legend = spec.legend ? legendOf(spec.legend) : null;
  target.replaceChildren(...(legend ? [legend] : []));
  const height = Math.max(target.clientHeight - (legend ? legend.offsetHeight + 4 : 0), 90);
  const made = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": spec.label || "" });
  spec.paint(made, width, height);
  const tip = element("div", { class: "tip" });
  tip.hidden = true;
  target.append(made, tip);
}
// The legend stands above the drawing, never over it.
function legendOf(entries) {
  return element("div", { class: "key" }, ...entries.map(({ name, index, line }) => {
    const mark = svg("svg", { width: 26, height: 10, "aria-hidden": "true" }, line
      ? svg("path", { d: "M1 5H25", style: "stroke:" + colour(index), "stroke-width": 2, "stroke-dasharray": DASHES[index % 8] })
      : svg("rect", { x: 4, y: 0, width: 14, height: 10, style: "fill:" + colour(index) }));
    return element("span", { title: name }, mark, shortName(name, 40));
  }));
}
function showTip(target, x, y, lines) {
  const tip = target.querySelector(".tip");
  tip.replaceChildren(...lines.map((line) => element("div", {}, line)));
  tip.hidden = false;
  tip.style.left = Math.max(Math.min(x + 12, target.clientWidth - tip.offsetWidth - 4), 0) + "px";
  tip.style.top = Math.max(y - tip.offsetHeight - 8, 0) + "px";
}
function hideTip(target) { target.querySelector(".tip").hidden = true; }

// Axes of one drawing: a grid, tick labels, titles. Returns the two scales and the frame.
function frame(into, width, height, x, y) {
  const left = y.names ? Math.min(12 + 7 * Math.max(...y.names.map((n) => Math.min(n.length, 22))), width * 0.42) : (y.title ? 62 : 48);
  const box = { left, right: width - 14, top: 8, bottom: height - (x.title ? 40 : 24) };
  const across = x.domain && scale(x.domain, [box.left, box.right]), up = y.domain && scale(y.domain, [box.bottom, box.top]);
  if (up) for (const value of ticks(...y.domain, Math.max((box.bottom - box.top) / 42, 2))) {
    into.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: up(value), y2: up(value) }),
      svg("text", { x: box.left - 6, y: up(value) + 4, "text-anchor": "end" }, y.form(value)));
  }
  if (across) for (const value of ticks(...x.domain, Math.max((box.right - box.left) / 70, 2))) {
    into.append(svg("line", { class: "grid", x1: across(value), x2: across(value), y1: box.top, y2: box.bottom }),
      svg("text", { x: across(value), y: box.bottom + 16, "text-anchor": "middle", class: "tick-x" }, x.form(value)));
  }
  if (x.title) into.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.title));
  if (y.title) into.append(svg("text", { x: -(box.top + box.bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle" }, y.title));
  return { box, across, up };
}
function rowNames(into, names, box, band) {
  const most = Math.max(Math.floor((box.left - 12) / 7), 4);
  names.forEach((name, i) => into.append(svg("text", { x: box.left - 8, y: box.top + band * (i + 0.5) + 4, "text-anchor": "end" }, svg("title", {}, name), shortName(name, most))));
}
function symbol(kind, x, y, size, style) {
  const d = { circle: `M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0`, square: `M${x - size} ${y - size}h${2 * size}v${2 * size}h${-2 * size}z`,
    diamond: `M${x} ${y - size * 1.3}l${size * 1.3} ${size * 1.3}l${-size * 1.3} ${size * 1.3}l${-size * 1.3} ${-size * 1.3}z`, triangle: `M${x} ${y - size * 1.2}l${size * 1.2} ${size * 2.2}h${-size * 2.4}z` }[kind];
  return svg("path", { d, style });
}
function path(xs, ys, across, up) { return xs.map((x, i) => (i ? "L" : "M") + across(x).toFixed(1) + " " + up(ys[i]).toFixed(1)).join(""); }

// series: {name, index (colour, dash, symbol), x, y, low, high, seeds: {seed: y}}.
function lineChart(target, { series, x, y, legend, label }) {
  const values = series.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || []), ...Object.values(s.seeds || {}).flat()]);
  const xDomain = extent(series.flatMap((s) => s.x), {}), yDomain = extent(values, y);
  const xs = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
  if (xs.length > 1) { xDomain[0] = xs[0]; xDomain[1] = xs[xs.length - 1]; }
  const paint = (into, width, height) => {
    const { box, across, up } = frame(into, width, height, { domain: xDomain, form: number, title: x.title }, { domain: yDomain, form: y.form, title: y.title });
    for (const s of series) if (s.low) into.append(svg("path", { class: "band", style: "fill:" + colour(s.index), d: path(s.x, s.high, across, up) + path([...s.x].reverse(), [...s.low].reverse(), across, up).replace("M", "L") + "z" }));
    for (const s of series) {
      const line = { fill: "none", style: "stroke:" + colour(s.index), "stroke-dasharray": DASHES[s.index % 8] };
      for (const values of Object.values(s.seeds || {})) into.append(svg("path", { ...line, class: "seed", d: path(s.x, values, across, up) }));
      into.append(svg("path", { ...line, class: "line", "data-name": s.name, "stroke-width": 2, d: path(s.x, s.y, across, up) }));
      if (s.x.length <= 25) s.x.forEach((v, i) => into.append(symbol(SYMBOLS[s.index % 4], across(v), up(s.y[i]), s.marked === i ? 6 : 3, "fill:" + colour(s.index))));
    }
    const guide = svg("line", { class: "guide", y1: box.top, y2: box.bottom, visibility: "hidden" });
    into.append(guide);
    into.addEventListener("pointermove", (event) => {
      const near = xs.reduce((best, v) => (Math.abs(across(v) - event.offsetX) < Math.abs(across(best) - event.offsetX) ? v : best), xs[0]);
      if (near === undefined) return;
      for (const [k, v] of Object.entries({ x1: across(near), x2: across(near), visibility: "visible" })) guide.setAttribute(k, v);
      const lines = series.map((s) => [s, s.x.indexOf(near)]).filter(([, i]) => i >= 0).map(([s, i]) => shortName(s.name, 40) + ": " + y.form(s.y[i], true) + (s.low ? " (" + y.form(s.low[i], true) + " to " + y.form(s.high[i], true) + ")" : ""));
      showTip(target, across(near), event.offsetY, [(x.title || "x") + " " + number(near), ...lines]);
    });
    into.addEventListener("pointerleave", () => { guide.setAttribute("visibility", "hidden"); hideTip(target); });
  };
  draw(target, { paint, series, label, legend: legend ? series.map((s) => ({ name: s.name, index: s.index, line: true })) : null, x: xDomain, y: yDomain });
}

// rows: {name, index, value, interval: [low, high] or null, points: [], notes: [] (one a point)}.
function dotChart(target, { rows, form, domain, reference, label }) {
  const paint = (into, width, height) => {
    const { box, across } = frame(into, width, height, { domain, form }, { names: rows.map((r) => r.name) });
    const band = (box.bottom - box.top) / Math.max(rows.length, 1);
    rowNames(into, rows.map((r) => r.name), box, band);
    if (reference !== undefined) into.append(svg("line", { class: "reference", x1: across(reference), x2: across(reference), y1: box.top, y2: box.bottom }));
    rows.forEach((row, i) => {
      const y = box.top + band * (i + 0.5), style = "fill:" + colour(row.index) + ";stroke:" + colour(row.index);
      const said = row.name + ": " + form(row.value, true) + (row.interval ? " (" + form(row.interval[0], true) + " to " + form(row.interval[1], true) + ")" : "");
      if (row.interval) into.append(svg("path", { class: "interval", style, d: `M${across(row.interval[0])} ${y}H${across(row.interval[1])}` }));
      (row.points || []).forEach((value, k) => into.append(svg("circle", { class: "dot", cx: across(value), cy: y, r: 3.5, style },
        svg("title", {}, row.name + ", " + row.notes[k] + ": " + form(value, true)))));
      const mark = symbol(SYMBOLS[row.index % 4], across(row.value), y, 6, style);
      mark.append(svg("title", {}, said));
      into.append(mark);
    });
  };
  draw(target, { paint, rows, label, domain });
}

// series: {name, index, values (one a category)}; stacked bars lie, grouped ones stand.
function barChart(target, { categories, series, stacked, x, y, label }) {
  const totals = stacked ? categories.map((_, i) => series.reduce((sum, s) => sum + s.values[i], 0)) : series.flatMap((s) => s.values);
  const domain = [0, Math.max(...totals, 0) * 1.04 || 1];
  const bar = (name, category, value, style, box) => svg("rect", { ...box, class: "bar", style }, svg("title", {}, category + ", " + name + ": " + number(value)));
  const lying = (into, width, height) => {
    const { box, across } = frame(into, width, height, { domain, form: number, title: x.title }, { names: categories });
    const band = (box.bottom - box.top) / Math.max(categories.length, 1);
    rowNames(into, categories, box, band);
    categories.forEach((category, i) => {
      let at = 0;
      for (const s of series) {
        into.append(bar(s.name, category, s.values[i], "fill:" + colour(s.index), { x: across(at), y: box.top + band * i + band * 0.18, width: Math.max(across(at + s.values[i]) - across(at), 0), height: band * 0.64 }));
        at += s.values[i];
      }
    });
  };
  const standing = (into, width, height) => {
    const { box, up } = frame(into, width, height, { title: x.title }, { domain, form: number, title: y.title });
    const band = (box.right - box.left) / categories.length, thick = (band * 0.8) / series.length;
    categories.forEach((category, i) => {
      into.append(svg("text", { x: box.left + band * (i + 0.5), y: box.bottom + 16, "text-anchor": "middle" }, category));
      series.forEach((s, k) => into.append(bar(s.name, category, s.values[i], "fill:" + colour(s.index), { x: box.left + band * (i + 0.1) + thick * k, y: up(s.values[i]), width: thick * 0.92, height: box.bottom - up(s.values[i]) })));
    });
  };
  draw(target, { paint: stacked ? lying : standing, series, categories, label, legend: series.map((s) => ({ name: s.name, index: s.index })) });
}
