// State, words for numbers, and the tables.
const ENVIRONMENTS = Object.keys(DATA.environments);
const state = { environment: ENVIRONMENTS[0], hidden: new Set(), panel: null };
const INDEX = new Map(DATA.methods.map((name, i) => [name, i]));

function here() { return DATA.environments[state.environment]; }
function shown() { return Object.keys(here().methods).filter((name) => !state.hidden.has(name)); }
function rate(value) { return value === null || value === undefined ? "–" : percent(value); }
function withStd(entry) { return entry ? rate(entry.mean) + (entry.std === null ? "" : " ± " + (100 * entry.std).toFixed(1)) : "–"; }
function interval(pair) { return pair ? " (" + (100 * pair[0]).toFixed(1) + " to " + (100 * pair[1]).toFixed(1) + ")" : ""; }
function withInterval(value, pair) { return rate(value) + interval(pair); }
function gap(entry) { return entry ? withInterval(entry.gap.value, entry.gap.interval) : "–"; }
function points(value) { return signed(Number((100 * value).toFixed(1))); }

function resultsTable() {
  const rows = shown().map((name) => {
    const method = here().methods[name], pairs = (here().improvement[name] || {})[DATA.baseline];
    const peak = method.val_at_max, last = method.last;
    return { attributes: { "data-method": name }, cells: [name, method.seeds.length, withStd(peak), peak ? withInterval(peak.iqm, peak.interval) : "–", gap(peak), withStd(last),
      last ? withInterval(last.iqm, last.interval) : "–", pairs ? withInterval(pairs.value, pairs.interval) : "–"] };
  });
  table(byId("table-results"), ["method", { label: "seeds", why: "runs of the method, each with its own random seed" }, { label: "val@max", why: "best validation of a run: mean over seeds ± sample deviation, in points" },
    { label: "val@max, interquartile mean", why: "mean of the middle half of the seeds, with its " + 100 * DATA.confidence + " % bootstrap interval" }, { label: "optimality gap", why: "how far from 100 % the best validations stay on average, with its interval; 0 is best" }, { label: "last", why: "the run's last validation, mean ± sample deviation" }, { label: "last, interquartile mean", why: "the same as an interquartile mean with its interval" },
    { label: "P(better than " + DATA.baseline + ")", why: "share of pairs in which a run of the method beats one of the baseline (best validation, ties count half); an interval across 50 % decides nothing" }], rows);
  if (ENVIRONMENTS.length > 1) overallRows();
}
function overallRows() {
  const body = byId("table-results").tBodies[0];
  body.append(element("tr", {}, element("th", { colspan: "8", class: "text" }, "All environments, stratified")));
  for (const name of DATA.methods.filter((m) => !state.hidden.has(m))) {
    const all = DATA.overall[name];
    if (!all.val_at_max) continue;
    const cells = [name, all.val_at_max.n, withStd(all.val_at_max), withInterval(all.val_at_max.iqm, all.val_at_max.interval), gap(all.val_at_max), withStd(all.last),
      withInterval(all.last.iqm, all.last.interval), all.improvement ? withInterval(all.improvement.value, all.improvement.interval) : "–"];
    body.append(element("tr", {}, ...cells.map((c, i) => element("td", i ? {} : { class: "text" }, c))));
  }
}
function pairedTable(id, found, mean, ahead) {
  const rows = shown().filter((name) => found[name]).map((name) => {
    const entry = found[name], less = entry.difference;
    const range = less && less.interval ? " (" + points(less.interval[0]) + " to " + points(less.interval[1]) + ")" : "";
    return [name, withStd(entry), less ? points(less.mean) + range : "–", less ? less.ahead + " of " + less.n : "–"];
  });
  table(byId(id), ["method", { label: "mean", why: mean }, { label: "less " + DATA.baseline + "'s, points", why: "difference from the baseline's run of the same seed, which draws the same tasks" }, { label: "seeds ahead", why: ahead }], rows);
}
function curvesTable() {
  pairedTable("table-curves", here().whole_curves, "mean of a run's validations after the start, over seeds ± sample deviation", "seeds in which the method's whole curve is above the baseline's");
  pairedTable("table-training", here().training_success, "episodes solved of all that a run trained on, over seeds ± sample deviation", "seeds in which the method won more of its training episodes than the baseline");
}
function stepsTable() {
  const cell = (s) => s.iteration === null ? "never" + (s.seeds_reaching ? " (" + s.seeds_reaching + "/" + s.seeds + " seeds)" : "")
    : s.iteration + (s.speed_up === null ? "" : ", " + s.speed_up.toFixed(2) + "×") + " (" + s.seeds_reaching + "/" + s.seeds + ")";
  table(byId("table-steps"), ["method", ...here().thresholds.map((t) => percent(t))],
    here().thresholds.length ? shown().map((name) => [name, ...here().steps[name].map(cell)]) : [["No method rose by a threshold of 5 % above the start."]]);
}
function pairsTable() {
  const pairs = here().improvement, names = shown().filter((name) => name in pairs);
  byId("pairs").hidden = names.length < 2;
  table(byId("table-pairs"), ["", ...names], names.map((a) => [a, ...names.map((b) => (a === b ? "" : withInterval(pairs[a][b].value, pairs[a][b].interval)))]));
}
function familiesTable() {
  const rows = [];
  for (const { name: panel } of here().panels) {
    const families = [...new Set(shown().flatMap((m) => Object.keys(here().families[panel][m] || {})))].sort();
    for (const family of families) rows.push([panel, family, ...shown().map((m) => {
      const found = here().families[panel][m][family];
      return found ? withStd(found) + " (" + points(found.mean - found.first) + ")" : "–";
    })]);
  }
  table(byId("table-families"), ["panel", "family", ...shown()], rows, [0, 1]);
}
const COSTS = { rollout: "playing the episodes", old_logprob: "log-probabilities under the policy that played", features: "state features for the clustering", credit: "clusters and advantages",
  reference: "log-probabilities under the starting policy", update: "gradient steps", other: "what no part covers" };
function costTable() {
  const cost = here().cost, parts = costParts();
  table(byId("table-cost"), ["method", ...parts.map((part) => ({ label: part, why: COSTS[part] })), { label: "iteration", why: "median seconds of a whole iteration" }, { label: "credit and features", why: "share of an iteration spent on step credit" }],
    shown().map((m) => [m, ...parts.map((p) => (p in cost[m] ? number(cost[m][p]) + " s" : "–")), "iteration" in cost[m] ? number(cost[m].iteration) + " s" : "–",
      "credit_share" in cost[m] ? (100 * cost[m].credit_share).toFixed(2) + " %" : "–"]));
}
function costParts() {
  const order = ["rollout", "old_logprob", "features", "credit", "reference", "update", "other"];
  return order.filter((p) => Object.values(here().cost).some((c) => p in c));
}
function configTable() {
  const { names, differences, differ_between_seeds: within } = DATA.config, keys = Object.keys(differences);
  byId("config-note").textContent = (keys.length ? "" : "All runs share one configuration but for the seed. ") +
    (within.length ? "Warning: the seeds of one method differ in " + within.join(", ") + "." : "");
  byId("table-config").hidden = !keys.length;
  table(byId("table-config"), ["setting", ...names], keys.map((key) => [key, ...names.map((n) => (differences[key][n] === null ? "–" : JSON.stringify(differences[key][n])))]));
}
function runsTable() {
  table(byId("table-runs"), ["run", { label: "iterations", why: "logged so far, of those planned" }, { label: "panel", why: "the tasks that validation plays" }, { label: "warm start", why: "first validation, before any update" }, { label: "best", why: "best validation" }, { label: "last", why: "last validation" }],
    DATA.runs.map((r) => [r.name, r.iterations + (r.planned && r.iterations < r.planned ? " of " + r.planned : ""), r.panel || "–", rate(r.first), rate(r.best), rate(r.last)]), [0, 2]);
}
function episodes() {
  const box = byId("episodes");
  if (!DATA.episodes.length) { box.textContent = "No run saved its episodes (run.save_rollouts=true)."; return; }
  box.replaceChildren(...DATA.episodes.map((e) => element("details", { class: "episode" },
    element("summary", {}, (e.won ? "solved: " : "not solved: ") + e.run + ", iteration " + e.iteration + ", task " + e.task + " (" + e.steps_in_all + " steps)"),
    ...e.steps.flatMap((s, t) => [element("h3", {}, "Step " + t + ": observation"), element("pre", { class: "observation" }, s.observation),
      element("h3", {}, "Response"), element("pre", { class: "response" }, s.response),
      element("p", { class: "quiet" }, "action sent: " + s.action + (s.valid ? "" : " (refused by the environment)"))]),
    ...(e.steps.length < e.steps_in_all ? [element("p", {}, "… " + (e.steps_in_all - e.steps.length) + " more steps")] : []))));
}
