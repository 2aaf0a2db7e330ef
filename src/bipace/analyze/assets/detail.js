// One step: its text, its peers, and the arithmetic of its advantage; or the whole transcript of its trajectory.
const panel = byId("detail");

async function openStep(row, options) {
  const trajectory = trajectoryOf(row), entry = panel.hidden;
  await load(trajectory.group.block);
  state.selected = row;
  if (options && "transcript" in options) state.transcript = options.transcript;
  panel.classList.toggle("wide", state.transcript);
  panel.replaceChildren(bar(row, trajectory), ...(state.transcript ? transcript(row, trajectory) : stepView(row, trajectory)));
  panel.hidden = false;
  document.body.classList.add("reading");
  const self = panel.querySelector(".turn.self");
  panel.scrollTop = self && row > trajectory.first ? self.offsetTop - 60 : 0;
  await markSelected();
  writeAddress(entry && !(options && options.quiet));
  const wanted = options && options.focus && byId(options.focus);
  (wanted && !wanted.disabled ? wanted : panel).focus({ preventScroll: true });
}
function closeStep() {
  const row = state.selected;
  panel.hidden = true;
  document.body.classList.remove("reading");
  state.selected = -1;
  state.transcript = false;
  markSelected();
  writeAddress();
  const cell = document.querySelector('.cell[data-row="' + row + '"]');
  if (cell) cell.focus({ preventScroll: true });
}
function move(by) {
  const trajectory = trajectoryOf(state.selected), row = state.selected + by;
  if (row >= trajectory.first && row < trajectory.first + trajectory.steps) openStep(row, { focus: by > 0 ? "next" : "previous" });
}
function bar(row, trajectory) {
  const t = row - trajectory.first, button = (id, label, why, onclick, off) => element("button", { type: "button", id, title: why, "aria-label": why, onclick, ...(off ? { disabled: "" } : {}) }, label);
  return element("div", { class: "bar" }, button("previous", "‹", "Previous step (p)", () => move(-1), t === 0), button("next", "›", "Next step (n)", () => move(1), t === trajectory.steps - 1),
    element("button", { type: "button", id: "transcript", "aria-pressed": String(state.transcript), title: "Whole transcript (t)", onclick: () => openStep(row, { transcript: !state.transcript, focus: "transcript" }) }, "Transcript"),
    button("link", "Copy link", "Copy the address of this step", copyLink), button("close", "✕", "Close (Esc)", closeStep));
}
async function copyLink() {
  try { await navigator.clipboard.writeText(location.href); byId("link").textContent = "Copied"; } catch { byId("link").textContent = "See the address bar"; }
}
function headline(row, trajectory) {
  return [element("h2", {}, trajectory.name + ", step " + (row - trajectory.first)),
    element("p", { class: "quiet" }, "step " + (row - trajectory.first + 1) + " of " + trajectory.steps + " · outcome " + number(trajectory.outcome) + " · reward of this step " + number(blockOf(row).steps.reward[row - blockOf(row).first]) +
      (trajectory.where ? " · " + trajectory.where : "") + (blockOf(row).loops.has(row) ? " · repeats an earlier step" : "") + (blockOf(row).unparsed.has(row) ? " · without the action form" : ""))];
}
function stepView(row, trajectory) {
  const action = textOf("action", row), response = textOf("response", row), names = [state.recipe, ...(state.beside && state.beside !== state.recipe ? [state.beside] : [])];
  return [...headline(row, trajectory), allRecipes(row), element("h3", {}, "Prompt"), ...prompt(row, trajectory),
    element("h3", {}, "Response"), element("pre", { id: "response" }, response || "(empty)"), ...(action === response ? [] : [fold("Action key", action || "(empty)")]),
    ...names.flatMap((name) => [element("h3", {}, "Arithmetic of " + name), ...arithmetic(name, row, trajectory.group, name === state.recipe)])];
}
function transcript(row, trajectory) {
  const turns = [];
  for (let r = trajectory.first; r < trajectory.first + trajectory.steps; r++) {
    const said = [state.recipe, ...(state.beside && state.beside !== state.recipe ? [state.beside] : [])].map((name) => name + " " + signed(valueOf(name, r))).join(" · ");
    turns.push(element("section", { class: "turn" + (r === row ? " self" : "") },
      element("h3", {}, element("button", { type: "button", class: "link", onclick: () => openStep(r, { transcript: false }) }, "Step " + (r - trajectory.first)), element("span", { class: "quiet" }, " " + said)),
      element("pre", { class: "seen" }, textOf("observation", r) || "(empty)"), element("pre", { class: "said" }, textOf("response", r) || "(empty)")));
  }
  return [element("h2", {}, trajectory.name), element("p", { class: "quiet" }, trajectory.steps + " steps · outcome " + number(trajectory.outcome) + (trajectory.where ? " · " + trajectory.where : "") + " · what the agent read, then what it answered"),
    ...(trajectory.context ? [fold("Instructions", trajectory.context)] : []), ...turns];
}
function allRecipes(row) {
  return element("dl", { id: "by-recipe", "aria-label": "Advantage by recipe" }, ...Object.keys(DATA.recipes).map((name) =>
    element("div", name === state.recipe || name === state.beside ? { class: "self" } : {}, element("dt", {}, name), element("dd", {}, signed(valueOf(name, row))))));
}
function prompt(row, trajectory) {
  const parts = trajectory.context ? [fold("Instructions", trajectory.context)] : [], earlier = [];
  for (let r = trajectory.first; r < row; r++) earlier.push("[observation " + (r - trajectory.first) + "]\n" + textOf("observation", r), "[response " + (r - trajectory.first) + "]\n" + textOf("response", r));
  if (earlier.length) parts.push(fold("Earlier steps (" + earlier.length / 2 + ")", earlier.join("\n\n")));
  return [...parts, element("pre", { id: "observation" }, textOf("observation", row) || "(empty)")];
}
function fold(title, content) { return element("details", {}, element("summary", {}, title), element("pre", {}, content)); }

function arithmetic(recipe, row, group, main) {
  const block = blockOf(row), credit = creditIn(block, recipe), i = row - block.first, made = [];
  for (const part of credit.parts) {
    for (const index of part.terms) made.push(...termView(block, credit.terms[index], row, group));
    if (part.blend) {
      const live = part.terms.map((index, k) => [block.columns[credit.terms[index].value][i], part.blend[k]]).filter(([value]) => value !== 0);
      made.push(element("p", { class: "formula" }, live.length
        ? "weighted mean of the levels that say something: (" + live.map(([v, w]) => number(w) + " × " + number(v)).join(" + ") + ") / " + number(live.reduce((s, [, w]) => s + w, 0))
        : "no level says anything about this step: 0"));
    }
  }
  const total = block.columns[credit.value][i];
  return [...made, element("p", { class: "formula", ...(main ? { id: "total" } : {}), "data-value": total }, "A = " + signed(total))];
}
function termView(block, term, row, group) {
  const at = (name) => block.columns[term[name]][row - block.first], branch = at("branch"), kind = element("p", {}, element("strong", {}, term.name));
  if (branch === 0) return [kind, element("p", { class: "formula term", "data-value": 0 }, "alone: nobody to compare with, value " + signed(at("value")))];
  const formula = element("p", { class: "formula term", "data-value": at("value"), "data-q": at("q"), "data-v": at("v"), "data-scale": at("scale") },
    (term.weight === 1 ? "" : number(term.weight) + " × ") + "(Q − V)" + (at("scale") === 1 ? "" : " / scale") + " = (" + number(at("q")) + " − " + number(at("v")) + ")" +
    (at("scale") === 1 ? "" : " / " + number(at("scale"))) + " = " + signed(at("value")));
  const why = branch === 1 ? "Every peer took this action, so its own return is compared with the mean of the others (leave-one-out)." : "R = " + number(at("returns")) + " is the return of this " + term.unit + ".";
  return [kind, formula, element("p", { class: "quiet" }, why), peers(block, term, row, group)];
}
function peers(block, term, row, group) {
  const returns = block.columns[term.returns], cluster = block.columns[term.cluster], own = trajectoryOf(row), found = [], made = element("table", { class: "plain" });
  if (term.unit === "trajectory") {
    for (const t of group.trajectories) found.push({ attributes: t === own ? { class: "self" } : {}, cells: [t.name, number(returns[t.first - block.first])] });
    return element("div", { class: "scroll" }, table(made, ["trajectory", "return"], found));
  }
  for (let r = group.first; r < group.last; r++) {
    if (cluster[r - block.first] !== cluster[row - block.first]) continue;
    const same = block.steps.action_label[r - block.first] === block.steps.action_label[row - block.first], mine = trajectoryOf(r) === own;
    found.push({ attributes: { class: r === row ? "self" : same ? "same" : "" }, cells: [element("button", { type: "button", class: "link", onclick: () => openStep(r) }, stepName(r)),
      excerpt(textOf("action", r), 160), number(returns[r - block.first]), (same ? "same action" : "") + (mine && r !== row ? (same ? ", " : "") + "own step" : "")] });
  }
  made.className = "plain peers";
  const box = element("div", { class: "scroll" }, table(made, ["step", "action", "return R", ""], found.slice(0, 60), [0, 1, 3]));
  if (found.length > 60) box.append(element("p", { class: "quiet" }, "and " + (found.length - 60) + " more peers"));
  return box;
}
