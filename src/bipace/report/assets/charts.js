// Charts. A diagnostic is drawn when it comes near the screen, and again when something it shows has changed.
function seriesOf(curves, seeds) {
  return shown().filter((name) => name in curves).map((name) => {
    const { iterations: x, mean: y, low, high, seeds: own } = curves[name];
    return { name, index: INDEX.get(name), x, y, low, high, seeds: seeds ? own : undefined };
  });
}
// A chart with nothing in it gives way to a sentence.
function orNothing(id, rows, sentence, paint) {
  const box = byId(id), figure = box.closest("figure");
  figure.classList.toggle("empty", !rows.length);
  if (rows.length) paint(box); else box.replaceChildren(element("p", { class: "quiet nothing" }, sentence));
}

function drawCurve() {
  const training = state.panel === "", curves = training ? here().training : here().curves[state.panel] || {}, series = seriesOf(curves, byId("seeds").checked);
  orNothing("chart-curve", series, "No method shown has logged this yet.", (box) => lineChart(box, { label: "Success over iterations", legend: true, series, x: { title: "iteration" }, y: { form: share, share: true, title: "success" } }));
  const panel = here().panels.find((p) => p.name === state.panel), several = series.some((s) => s.low);
  byId("curve-note").textContent = (training ? "Training rollouts, sampled." : "Every task of " + state.panel + (panel && panel.tasks ? " (" + panel.tasks + " tasks)" : "") + " played once.") +
    (several ? " Mean over seeds; the band is a " + 100 * DATA.confidence + " % bootstrap interval of the mean." : " One seed a method: no band.");
}
function drawPeak() {
  const rows = shown().filter((m) => here().methods[m].val_at_max).map((name) => {
    const { val_at_max: peak, seeds } = here().methods[name];
    return { name, index: INDEX.get(name), value: peak.iqm, interval: peak.interval, points: peak.values, notes: seeds.map((s) => "seed " + s) };
  });
  const all = rows.flatMap((r) => [r.value, ...r.points, ...(r.interval || [])]);
  orNothing("chart-peak", rows, "No validation has been played yet.", (box) => dotChart(box, { label: "Best validation success by method", rows, form: share, domain: extent(all, { share: true }) }));
}
function drawImprovement() {
  byId("baseline").textContent = DATA.baseline;
  const pairs = here().improvement, names = shown().filter((m) => m !== DATA.baseline && pairs[m] && pairs[m][DATA.baseline]);
  const rows = names.map((name) => ({ name, index: INDEX.get(name), ...pairs[name][DATA.baseline] }));
  orNothing("chart-improvement", rows, "Nothing to compare: the probability of improvement needs a second method beside " + DATA.baseline + ".",
    (box) => dotChart(box, { label: "Probability of improvement over " + DATA.baseline, rows, form: share, domain: [0, 1], reference: 0.5 }));
}
function drawCost() {
  const parts = costParts(), names = shown();
  orNothing("chart-cost", parts, "No timing was logged.", (box) => {
    box.style.height = 90 + 34 * names.length + "px";
    barChart(box, { label: "Median seconds by part", categories: names, stacked: true, x: { title: "seconds" }, y: {}, series: parts.map((part, index) => ({ name: part, index, values: names.map((m) => here().cost[m][part] || 0) })) });
  });
}

const stale = new Set(), near = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) near.add(entry.target); else near.delete(entry.target);
  }
  redrawStale();
}, { rootMargin: "400px" });
function redrawStale() {
  for (const chart of stale) if (near.has(chart)) { stale.delete(chart); drawDiagnostic(chart); }
}
function drawDiagnostic(chart) {
  const key = chart.dataset.metric, { unit, label } = DATA.diagnostics[key], form = unit === "share" ? share : (v) => number(v);
  lineChart(chart, { label, series: seriesOf(here().diagnostics[key], false), x: {}, y: { form, zero: true, share: unit === "share", title: unit === "share" ? "" : unit } });
  chart.dataset.drawn = "yes";
}
function diagnostics() {
  watcher.disconnect();
  stale.clear(); near.clear();
  byId("diagnostics").replaceChildren(...Object.keys(here().diagnostics).map((key) => {
    const chart = element("div", { class: "chart", "data-metric": key });
    stale.add(chart);
    watcher.observe(chart);
    return element("figure", { title: key }, element("h3", {}, DATA.diagnostics[key].label), chart);
  }));
}
