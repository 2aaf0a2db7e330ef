// Overview, findings, and the table of recipes.
const SHOWN_NUMBERS = [
  ["groups", "prompt groups", number], ["trajectories", "trajectories", number], ["steps", "steps", number],
  ["flat_groups", "groups without reward variance", number], ["lone_groups", "groups of one trajectory", number],
  ["positive_outcome_share", "rollouts with outcome above 0", percent], ["duplicate_trajectories", "copied trajectories", number],
  ["loop_step_share", "steps that repeat themselves", percent], ["aliasing", "same text, other continuation", percent],
  ["parse_rate", "responses in the file's form", percent], ["dropped_trajectories", "left out: no usable reward", number],
];

function showOverview() {
  document.getElementById("source").textContent = DATA.files.map((f) => f.file + " (" + f.format + ", " + f.trajectories + " trajectories)").join(" · ");
  const cards = SHOWN_NUMBERS.filter(([name]) => name in DATA.numbers).map(([name, label, form]) => [label, form(DATA.numbers[name])]);
  cards.push(["steps without a peer, same text", percent(DATA.recipes.gigpo.diagnostics.lone_step_share)]);
  cards.push(["steps without a peer, eps " + DATA.options.eps, percent(DATA.recipes.bipace.diagnostics.lone_step_share)]);
  document.getElementById("numbers").replaceChildren(...cards.map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value))));
  const notes = ["State features: " + DATA.features.label + ".", ...DATA.files.flatMap((f) => f.notes.map((n) => f.file + ": " + n + "."))];
  if (DATA.sampled) notes.unshift("The numbers above are of the whole input; the groups below are a sample: " + DATA.sampled.groups + " of " + DATA.sampled.of +
    " groups, " + DATA.sampled.steps + " of " + DATA.sampled.of_steps + " steps.");
  document.getElementById("notes").replaceChildren(...notes.flatMap((n) => [n, element("br")]));
}

function showFindings() {
  const place = (p) => {
    const g = GROUP_BY_ID.get(p.group);
    if (g === undefined) return null;
    const label = p.t !== null ? p.trajectory + ", step " + p.t : p.trajectory !== null ? p.trajectory : taskTitle(DATA.groups[g]);
    return element("button", { type: "button", title: label, onclick: () => goTo(g, p) }, label);
  };
  document.getElementById("findings").replaceChildren(...DATA.findings.map((f) => {
    const places = f.places.map(place).filter(Boolean);
    return element("details", { class: "finding " + f.severity, "data-id": f.id, ...(f.severity === "info" ? {} : { open: "" }) },
      element("summary", {}, element("span", { class: "tag" }, f.severity), f.title),
      element("p", {}, f.meaning), element("p", {}, element("strong", {}, "What to change: "), f.advice),
      ...(places.length ? [element("div", { class: "places" }, ...places)] : []));
  }));
  if (!DATA.findings.length) document.getElementById("findings").textContent = "Nothing stands out.";
}

function showRecipes() {
  const columns = [["clusters", "clusters", number], ["singleton_rate", "of one step", percent], ["lone_step_share", "steps without a peer", percent],
    ["cluster_size_p90", "P90 size", number], ["cluster_size_max", "largest", number], ["trajectories_per_cluster", "trajectories / cluster", number],
    ["comparable_pairs", "pairs", number], ["multi_action_rate", "with 2+ actions", percent], ["branch_fallback", "leave-one-out", percent], ["zero_advantage_share", "advantage 0", percent]];
  table(document.getElementById("recipes"), ["recipe", ...columns.map((c) => c[1])],
    Object.entries(DATA.recipes).map(([name, r]) => [name, ...columns.map(([key, , form]) => (key in r.diagnostics ? form(r.diagnostics[key]) : "–"))]));
  const names = DATA.agreement.recipes, { correlation, same_sign } = DATA.agreement;
  table(document.getElementById("agreement"), ["", ...names], names.map((name, i) => [name, ...names.map((_, j) =>
    i < j ? (correlation[i][j] === null ? "–" : correlation[i][j].toFixed(2)) : i === j ? "" : same_sign[i][j] === null ? "–" : Math.round(100 * same_sign[i][j]) + " %")]));
}
