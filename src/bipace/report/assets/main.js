// Controls, and what is drawn again when they change.
function tables() { resultsTable(); stepsTable(); curvesTable(); pairsTable(); familiesTable(); costTable(); }
function charts() {
  drawPeak(); drawImprovement(); drawCurve(); drawCost();
  document.querySelectorAll("#diagnostics .chart").forEach((chart) => stale.add(chart));
  redrawStale();
}
function option(kind, name, checked, type, onchange, mark) {
  const input = element("input", { type, name: kind, value: name });
  input.checked = checked;
  input.addEventListener("change", () => onchange(input.checked));
  return element("label", {}, input, element("span", {}, ...(mark ? [mark] : []), name));
}
function methodSwitch() {
  const labels = Object.keys(here().methods).map((name) => {
    const mark = element("i");
    mark.style.background = colour(INDEX.get(name));
    return option("method", name, !state.hidden.has(name), "checkbox", (on) => { if (on) state.hidden.delete(name); else state.hidden.add(name); tables(); charts(); }, mark);
  });
  byId("methods").replaceChildren(element("legend", {}, "Methods shown"), ...labels);
}
function panelSwitch() {
  const names = here().panels.map((p) => p.name);
  state.panel = names.length ? names[0] : "";
  byId("panel").replaceChildren(...names.map((name, i) => element("option", { value: name }, name + (i ? "" : " (validation)"))), element("option", { value: "" }, "training rollouts"));
}
function environmentSwitch() {
  byId("environment").hidden = ENVIRONMENTS.length < 2;
  byId("environment").append(...ENVIRONMENTS.map((name) => option("environment", name, name === state.environment, "radio", () => { state.environment = name; showEnvironment(); })));
}
function showEnvironment() { methodSwitch(); panelSwitch(); tables(); diagnostics(); charts(); }

const counted = (n, word) => n + " " + word + (n === 1 ? "" : "s");
byId("source").textContent = DATA.name + ": " + counted(DATA.runs.length, "run") + ", " + counted(DATA.methods.length, "method") + ", " + counted(ENVIRONMENTS.length, "environment");
byId("notes").hidden = !DATA.notes.length;
byId("notes").replaceChildren(...DATA.notes.flatMap((note) => [note, element("br")]));
byId("how").textContent = "val@max: best validation of a run, mean ± sample deviation over seeds in points. Interquartile means with " + 100 * DATA.confidence + " % stratified bootstrap intervals (" +
  DATA.resamples + " resamples). P: a run of the method beats one of the baseline, ties count half.";
environmentSwitch();
configTable();
runsTable();
episodes();
showEnvironment();
byId("panel").addEventListener("change", (event) => { state.panel = event.target.value; drawCurve(); });
byId("seeds").addEventListener("change", drawCurve);
onTheme(() => {});
// Paper shows every chart, also those that have not been near the screen.
addEventListener("beforeprint", () => { for (const chart of stale) drawDiagnostic(chart); stale.clear(); });
document.documentElement.dataset.ready = "yes";
