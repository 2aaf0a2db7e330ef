// What is shown stands in the address, so that it survives a reload and can be sent: recipe, radius, filters, the open step.
const ADDRESS = [["recipe", "recipe"], ["beside", "beside"], ["q", "search"], ["show", "filter"], ["order", "sort"], ["file", "file"]];

function address() {
  const parts = new URLSearchParams();
  for (const [key, name] of ADDRESS) if (state[name] !== DEFAULTS[name]) parts.set(key, state[name]);
  if (state.eps !== DEFAULTS.eps) parts.set("eps", DATA.sweep[state.eps].eps);
  if (state.selected >= 0) {
    const trajectory = trajectoryOf(state.selected);
    parts.set("trajectory", trajectory.name);
    parts.set("step", state.selected - trajectory.first);
    if (state.transcript) parts.set("view", "transcript");
  }
  return "#" + parts.toString();
}
function writeAddress(entry) {
  const wanted = address();
  if (wanted === (location.hash || "#")) return;
  history[entry ? "pushState" : "replaceState"](null, "", wanted);
}
// Returns the row the address names, or -1. Values that this page does not have are left at their defaults.
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, DEFAULTS);
  const allowed = { recipe: (v) => v in DATA.recipes, beside: (v) => v in DATA.recipes, search: () => true, filter: (v) => v in FILTERS, sort: (v) => v in ORDERS, file: (v) => v in DATA.files };
  for (const [key, name] of ADDRESS) if (parts.has(key) && allowed[name](parts.get(key))) state[name] = parts.get(key);
  const eps = DATA.sweep.findIndex((s) => String(s.eps) === parts.get("eps"));
  if (eps >= 0) state.eps = eps;
  state.transcript = parts.get("view") === "transcript";
  const trajectory = BY_NAME.get(parts.get("trajectory")), t = Number(parts.get("step") || 0);
  return trajectory && Number.isInteger(t) && t >= 0 && t < trajectory.steps ? trajectory.first + t : -1;
}
