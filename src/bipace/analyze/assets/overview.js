// Overview, findings, and the tables of recipes.
const SHOWN_NUMBERS = [
  ["groups", "prompt groups", number], ["trajectories", "trajectories", number], ["steps", "steps", number],
  ["flat_groups", "groups without reward variance", number], ["lone_groups", "groups of one trajectory", number],
  ["positive_outcome_share", "rollouts with outcome above 0", percent], ["duplicate_trajectories", "copied trajectories", number],
  ["loop_step_share", "steps that repeat themselves", percent], ["aliasing", "same text, other continuation", percent],
  ["parse_rate", "responses in the file's form", percent], ["dropped_trajectories", "left out of every baseline", number],
];
const FILE_NAMES = DATA.files.map((f) => f.name);

function showOverview() {
  const named = DATA.files.map((f, i) => FILE_NAMES[i] + " (" + f.format + ", " + f.trajectories + " trajectories)");
  byId("source").textContent = named.slice(0, 6).join(" · ") + (named.length > 6 ? " · and " + (named.length - 6) + " more files" : "");
  const cards = SHOWN_NUMBERS.filter(([name]) => name in DATA.numbers).map(([name, label, form]) => [label, form(DATA.numbers[name])]);
  cards.push(["steps without a peer, same text", percent(DATA.recipes.gigpo.diagnostics.lone_step_share)]);
  cards.push(["steps without a peer, eps " + DATA.options.eps, percent(DATA.recipes.bipace.diagnostics.lone_step_share)]);
  byId("numbers").replaceChildren(...cards.map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value))));
  const notes = ["State features: " + DATA.features.label + ".", ...DATA.files.flatMap((f, i) => f.notes.map((n) => FILE_NAMES[i] + ": " + n + "."))];
  if (DATA.sampled) notes.unshift("The numbers above are of the whole input; the groups below are a sample: " + DATA.sampled.groups + " of " + DATA.sampled.of +
    " groups, " + DATA.sampled.steps + " of " + DATA.sampled.of_steps + " steps (--page-steps shows more).");
  if (DATA.text_limit < 6000) notes.unshift("Texts are cut after " + DATA.text_limit + " characters to keep this page small (--page-mb keeps more).");
  byId("notes").replaceChildren(...notes.slice(0, 12).flatMap((n) => [n, element("br")]));
}

function placeButton(groupId, label, place) {
  const group = GROUP_BY_ID.get(groupId);
  return group ? element("button", { type: "button", title: label, onclick: () => goTo(group, place) }, label) : element("span", { class: "quiet", title: "not among the groups shown" }, label);
}
function findingView(f, i) {
  const worst = f.worst.map((w) => element("li", {}, placeButton(w.group, taskTitle(w.task), null), element("span", {}, " " + w.number)));
  const places = f.places.map((p) => placeButton(p.group, p.t !== null ? p.trajectory + ", step " + p.t : p.trajectory !== null ? p.trajectory : taskTitle(p.task), p));
  return element("details", { class: "finding " + f.severity, id: "finding-" + f.id, "data-id": f.id, ...(f.severity === "info" && i > 2 ? {} : { open: "" }) },
    element("summary", {}, element("span", { class: "tag" }, f.severity), f.title),
    element("p", {}, f.meaning), element("p", { class: "advice" }, element("strong", {}, "What to change: "), f.advice),
    ...(worst.length ? [element("p", { class: "quiet" }, "Worst groups"), element("ol", { class: "worst" }, ...worst)] : []),
    ...(places.length ? [element("details", { class: "places-box" }, element("summary", {}, "Places to look at (" + places.length + ")"), element("div", { class: "places" }, ...places))] : []));
}
function showFindings() {
  byId("findings").replaceChildren(...DATA.findings.map(findingView));
  if (!DATA.findings.length) byId("findings").textContent = "Nothing stands out.";
}
function taskTitle(name) { return name.length < 8 ? "task " + name : name; }

const RECIPE_COLUMNS = [["clusters", "clusters", number, "sets of steps that are compared with each other"], ["singleton_rate", "of one step", percent, "share of clusters that hold a single step"],
  ["lone_step_share", "steps without a peer", percent, "share of steps that are alone in their cluster: they get no step-level credit"],
  ["cluster_size_p90", "P90 size", number, "nine of ten clusters hold at most so many steps"], ["cluster_size_max", "largest", number, "steps in the largest cluster"],
  ["trajectories_per_cluster", "trajectories / cluster", number, "distinct trajectories in a cluster: steps of one trajectory are not independent peers"],
  ["comparable_pairs", "pairs", number, "pairs of steps in one cluster that took different actions"], ["multi_action_rate", "with 2+ actions", percent, "share of clusters of several steps in which more than one action was taken"],
  ["branch_fallback", "leave-one-out", percent, "share of steps whose peers all took the same action: their return is compared with the mean of the others"],
  ["zero_advantage_share", "advantage 0", percent, "share of steps that teach nothing under this recipe"]];
function showRecipes() {
  table(byId("recipes"), [{ label: "recipe", why: "how an advantage is computed; `bipace recipes` prints the equations" }, ...RECIPE_COLUMNS.map(([, label, , why]) => ({ label, why }))],
    Object.entries(DATA.recipes).map(([name, r]) => [name, ...RECIPE_COLUMNS.map(([key, , form]) => (key in r.diagnostics ? form(r.diagnostics[key]) : "–"))]));
  const names = DATA.agreement.recipes, { correlation, same_sign } = DATA.agreement;
  table(byId("agreement"), ["", ...names], names.map((name, i) => [name, ...names.map((_, j) =>
    i < j ? (correlation[i][j] === null ? "–" : correlation[i][j].toFixed(2)) : i === j ? "" : same_sign[i][j] === null ? "–" : Math.round(100 * same_sign[i][j]) + " %")]));
}

function drawSweep() {
  const eps = DATA.sweep.map((s) => s.eps), exact = DATA.recipes.gigpo.diagnostics.lone_step_share;
  lineChart(byId("chart-sweep"), { label: "Share of steps without a peer over the radius", legend: true, x: { title: "eps" }, y: { form: share, zero: true, share: true, title: "steps without a peer" },
    series: [{ name: "same text (GiGPO)", index: 1, x: [eps[0], eps[eps.length - 1]], y: [exact, exact] }, { name: "within eps", index: 0, x: eps, y: DATA.sweep.map((s) => s.bipace.lone_step_share), marked: state.eps }] });
}
function drawErrors() {
  lineChart(byId("chart-errors"), { label: "Prediction error over the radius", x: { title: "eps" }, y: { form: number, title: "squared error" },
    series: [{ name: "prediction error", index: 0, x: DATA.sweep.map((s) => s.eps), y: DATA.sweep.map((s) => s.prediction_error), marked: state.eps }] });
}
function drawSizes() {
  const bins = [[1, 1], [2, 2], [3, 4], [5, 8], [9, 16], [17, 32], [33, Infinity]];
  const label = ([low, high]) => (high === Infinity ? low + "+" : low === high ? String(low) : low + "–" + high);
  const steps = (sizes) => bins.map(([low, high]) => sizes.filter(([s]) => s >= low && s <= high).reduce((sum, [s, n]) => sum + s * n, 0));
  barChart(byId("chart-sizes"), { label: "Steps by the size of their cluster", categories: bins.map(label), x: { title: "cluster size" }, y: { title: "steps" },
    series: [{ name: "same text (GiGPO)", index: 1, values: steps(DATA.sizes.gigpo) }, { name: "within eps " + DATA.options.eps, index: 0, values: steps(DATA.sizes.bipace) }] });
}
