// One step: its text, its peers, and the arithmetic of its advantage.
const panel = document.getElementById("detail");

function openStep(row, scroll) {
  state.selected = row;
  const group = DATA.groups[GROUP_OF[row]], trajectory = group.trajectories[TRAJECTORY_OF[row]];
  const credit = creditOf(state.recipe);
  panel.replaceChildren(
    element("button", { class: "close", type: "button", "aria-label": "Close", onclick: closeStep }, "✕"),
    element("h2", {}, text(trajectory.name) + ", step " + T_OF[row]),
    element("p", { class: "quiet" }, "outcome " + number(trajectory.outcome) + " · reward of this step " + number(STEPS.reward[row]) + " · " + trajectory.where +
      (LOOPS.has(row) ? " · repeats an earlier step" : "") + (UNPARSED.has(row) ? " · without the action form" : "")),
    allRecipes(row),
    element("h3", {}, "Prompt"), ...prompt(row, trajectory),
    element("h3", {}, "Response"), element("pre", { id: "response" }, text(STEPS.response[row]) || "(empty)"),
    ...(STEPS.action[row] === STEPS.response[row] ? [] : [fold("Action key", text(STEPS.action[row]) || "(empty)")]),
    element("h3", {}, "Arithmetic of " + state.recipe), ...arithmetic(credit, row, group),
  );
  panel.hidden = false;
  panel.scrollTop = 0;
  markSelected(scroll);
  panel.focus({ preventScroll: true });
}

function closeStep() {
  const row = state.selected;
  panel.hidden = true;
  state.selected = -1;
  markSelected(false);
  const cell = document.querySelector('.cell[data-row="' + row + '"]');
  if (cell) cell.focus();
}

function allRecipes(row) {
  const names = Object.keys(DATA.recipes);
  return element("dl", { id: "by-recipe", "aria-label": "Advantage by recipe" }, ...names.map((name) =>
    element("div", name === state.recipe ? { class: "self" } : {}, element("dt", {}, name), element("dd", {}, signed(valuesOf(name)[row])))));
}

function prompt(row, trajectory) {
  const parts = [];
  if (text(trajectory.context)) parts.push(fold("Instructions", text(trajectory.context)));
  const t = T_OF[row];
  if (t) {
    const earlier = [];
    for (let back = t; back >= 1; back--) {
      earlier.push("[observation " + (t - back) + "]\n" + text(STEPS.observation[row - back]), "[response " + (t - back) + "]\n" + text(STEPS.response[row - back]));
    }
    parts.push(fold("Earlier steps (" + t + ")", earlier.join("\n\n")));
  }
  parts.push(element("pre", { id: "observation" }, text(STEPS.observation[row]) || "(empty)"));
  return parts;
}
function fold(title, content) { return element("details", {}, element("summary", {}, title), element("pre", {}, content)); }

function arithmetic(credit, row, group) {
  const made = [];
  for (const part of credit.parts) {
    for (const index of part.terms) made.push(...termView(credit.terms[index], row, group));
    if (part.blend) {
      const live = part.terms.map((index, k) => [COLUMNS[credit.terms[index].value][row], part.blend[k]]).filter(([value]) => value !== 0);
      made.push(element("p", { class: "formula" }, live.length
        ? "weighted mean of the levels that say something: (" + live.map(([v, w]) => number(w) + " × " + number(v)).join(" + ") + ") / " + number(live.reduce((s, [, w]) => s + w, 0))
        : "no level says anything about this step: 0"));
    }
  }
  made.push(element("p", { class: "formula", id: "total", "data-value": COLUMNS[credit.value][row] }, "A = " + signed(COLUMNS[credit.value][row])));
  return made;
}

function termView(term, row, group) {
  const at = (name) => COLUMNS[term[name]][row];
  const branch = at("branch");
  const kind = element("p", {}, element("strong", {}, term.name));
  if (branch === 0) return [kind, element("p", { class: "formula term", "data-value": 0 }, "alone: nobody to compare with, value " + signed(at("value")))];
  const formula = element("p", { class: "formula term", "data-value": at("value"), "data-q": at("q"), "data-v": at("v"), "data-scale": at("scale") },
    (term.weight === 1 ? "" : number(term.weight) + " × ") + "(Q − V)" + (at("scale") === 1 ? "" : " / scale") + " = (" + number(at("q")) + " − " + number(at("v")) + ")" +
    (at("scale") === 1 ? "" : " / " + number(at("scale"))) + " = " + signed(at("value")));
  const why = branch === 1 ? "Every peer took this action, so its own return is compared with the mean of the others (leave-one-out)." : "R = " + number(at("returns")) + " is the return of this " + term.unit + ".";
  return [kind, formula, element("p", { class: "quiet" }, why), peers(term, row, group)];
}

function peers(term, row, group) {
  const returns = COLUMNS[term.returns], cluster = COLUMNS[term.cluster], rows = [];
  if (term.unit === "trajectory") {
    group.trajectories.forEach((trajectory) => rows.push({ attributes: trajectory.first + T_OF[row] === row ? { class: "self" } : {},
      cells: [text(trajectory.name), number(returns[trajectory.first])] }));
    return element("div", { class: "scroll" }, table(element("table"), ["trajectory", "return"], rows));
  }
  for (let r = group.first; r < group.last; r++) {
    if (cluster[r] !== cluster[row]) continue;
    const same = STEPS.action_label[r] === STEPS.action_label[row];
    rows.push({ attributes: { class: r === row ? "self" : same ? "same" : "" },
      cells: [element("button", { type: "button", onclick: () => openStep(r, true) }, "tr. " + (TRAJECTORY_OF[r] + 1) + ", step " + T_OF[r]),
        text(STEPS.action[r]).slice(0, 160), number(returns[r]), same ? "same" : ""] });
  }
  const shown = rows.slice(0, 60);
  const made = [table(element("table", { class: "peers" }), ["step", "action", "return R", "action"], shown, [0, 1])];
  if (rows.length > shown.length) made.push(element("p", { class: "quiet" }, "and " + (rows.length - shown.length) + " more peers"));
  return element("div", { class: "scroll" }, ...made);
}
