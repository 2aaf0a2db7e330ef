// Two files side by side: their own numbers, and the tasks that both hold.
const FILE_ROWS = [["trajectories", "trajectories", number], ["groups", "prompt groups", number], ["steps", "steps", number], ["outcome_mean", "mean outcome", number],
  ["positive_outcome_share", "rollouts with outcome above 0", percent], ["flat_group_share", "groups without reward variance", percent], ["steps_per_trajectory_mean", "steps a trajectory", number],
  ["duplicate_share", "copied trajectories", percent], ["loop_step_share", "steps that repeat themselves", percent], ["lone_exact_share", "steps without a peer, same text", percent],
  ["lone_near_share", "steps without a peer, eps " + DATA.options.eps, percent], ["parse_rate", "responses in the file's form", percent]];

function showCompare() {
  const found = DATA.compare;
  byId("compare").hidden = !found;
  if (!found) return;
  const options = () => found.files.map(({ file }) => element("option", { value: file }, FILE_NAMES[file]));
  byId("file-a").replaceChildren(...options());
  byId("file-b").replaceChildren(...options());
  byId("file-b").selectedIndex = 1;
  for (const id of ["file-a", "file-b"]) byId(id).addEventListener("change", drawCompare);
  drawCompare();
}
function drawCompare() {
  const [a, b] = ["file-a", "file-b"].map((id) => Number(byId(id).value)), files = new Map(DATA.compare.files.map((f) => [f.file, f]));
  const change = (x, y, form) => (x === null || y === null || x === y ? "" : form === percent ? signed(Number((100 * (y - x)).toFixed(1))) + " points" : signed(y - x));
  table(byId("table-files"), ["", FILE_NAMES[a], FILE_NAMES[b], "difference"],
    FILE_ROWS.map(([key, label, form]) => [label, form(files.get(a)[key]), form(files.get(b)[key]), change(files.get(a)[key], files.get(b)[key], form)]));
  const pair = DATA.compare.pairs.find(([x, y]) => (x === a && y === b) || (x === b && y === a)), sign = pair && pair[0] === a ? 1 : -1;
  byId("pair").textContent = a === b ? "Choose two different files." : sayPair(pair, sign);
  const shared = Object.entries(DATA.compare.tasks).filter(([, e]) => a !== b && a in e && b in e).sort(([, x], [, y]) => Math.abs(y[b][1] - y[a][1]) - Math.abs(x[b][1] - x[a][1]));
  const cell = (entry) => placeButton(entry[2], number(entry[1]) + " (" + entry[0] + ")", null);
  table(byId("table-tasks"), [{ label: "task", why: "the largest differences come first" }, { label: FILE_NAMES[a], why: "mean outcome (trajectories); a click leads to the group" }, { label: FILE_NAMES[b], why: "the same in the second file" }, "difference"],
    shared.slice(0, 40).map(([name, e]) => [excerpt(name, 120), cell(e[a]), cell(e[b]), signed(Number((e[b][1] - e[a][1]).toPrecision(4)))]));
}
function sayPair([, , tasks, mean, interval, better, worse], sign) {
  if (!tasks) return "The two files share no task, so only their own numbers can be compared.";
  const ends = interval && [sign * interval[0], sign * interval[1]].sort((x, y) => x - y);
  return tasks + " tasks stand in both files. Mean outcome, second file less first: " + signed(sign * mean) + (ends ? " (95 % bootstrap interval over tasks " + number(ends[0]) + " to " + number(ends[1]) + ")" : "") +
    "; better in " + (sign > 0 ? better : worse) + ", worse in " + (sign > 0 ? worse : better) + ", equal in " + (tasks - better - worse) + ".";
}
