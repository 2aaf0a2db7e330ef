// Controls, keyboard, theme.
function recipeSwitch() {
  for (const name of Object.keys(DATA.recipes)) {
    const input = element("input", { type: "radio", name: "recipe", value: name, id: "recipe-" + name });
    input.addEventListener("change", () => { state.recipe = name; changed(); });
    byId("recipe").append(element("label", { title: DATA.recipes[name].summary }, input, element("span", {}, name)));
    byId("beside").append(element("option", { value: name }, name));
  }
  byId("file-filter").hidden = DATA.files.length < 2 || DATA.files.length > 40;
  byId("file").append(...FILE_NAMES.map((name, i) => element("option", { value: i }, name)));
}
// Controls as the state says.
function showControls() {
  byId("recipe-" + state.recipe).checked = true;
  for (const [id, name] of [["beside", "beside"], ["filter", "filter"], ["sort", "sort"], ["search", "search"], ["file", "file"]]) byId(id).value = state[name];
  byId("eps").value = state.eps;
  const sweep = DATA.sweep[state.eps];
  byId("eps-value").textContent = sweep.eps;
  byId("eps-note").textContent = percent(sweep.bipace.lone_step_share) + " of steps without a peer, P90 size " + number(sweep.bipace.cluster_size_p90) + (DATA.best_eps === null ? "" : ", prediction error " + number(sweep.prediction_error) + " (least at eps " + DATA.best_eps + ")");
  const limit = number(limitOf(state.recipe)), two = state.beside && state.beside !== state.recipe;
  byId("legend").replaceChildren("−" + limit, element("i"), "+" + limit + (two ? " · upper half " + state.recipe + ", lower half " + state.beside : ""));
}
// What colours mean has changed: the recipes or the radius.
function changed() {
  showControls();
  paintAll();
  if (state.sort === "differ") listGroups(); else writeAddress();
}
function moveFocus(cell, key) {
  const row = Number(cell.dataset.row), own = trajectoryOf(row), t = row - own.first;
  let next = row;
  if (key === "ArrowRight") next = Math.min(row + 1, own.first + own.steps - 1);
  if (key === "ArrowLeft") next = Math.max(row - 1, own.first);
  if (key === "Home") next = own.first;
  if (key === "End") next = own.first + own.steps - 1;
  if (key === "ArrowDown" || key === "ArrowUp") {
    const other = own.group.trajectories[own.index + (key === "ArrowDown" ? 1 : -1)];
    if (other) next = other.first + Math.min(t, other.steps - 1);
  }
  const target = document.querySelector('.cell[data-row="' + next + '"]');
  cell.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}
function onKey(event) {
  const active = document.activeElement, typing = /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName) && active.type !== "radio";
  const open = state.selected >= 0, onCell = active.classList.contains("cell");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && open) closeStep();
  else if (/^(Arrow|Home|End)/.test(event.key) && onCell) { event.preventDefault(); moveFocus(active, event.key); }
  else if (typing) return;
  else if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
  else if (event.key === "r") { const names = Object.keys(DATA.recipes); state.recipe = names[(names.indexOf(state.recipe) + 1) % names.length]; changed(); }
  else if (event.key === "?") byId("keys").open = !byId("keys").open;
  else if (open && (event.key === "n" || (event.key === "ArrowRight" && panel.contains(active)))) move(1);
  else if (open && (event.key === "p" || (event.key === "ArrowLeft" && panel.contains(active)))) move(-1);
  else if (open && event.key === "t") openStep(state.selected, { transcript: !state.transcript });
}
function drawCharts() { drawSweep(); drawErrors(); drawSizes(); }
async function fromAddress() {
  const row = readAddress();
  showControls();
  await listGroups();
  if (row >= 0) await openStep(row, { quiet: true });
  else if (!panel.hidden) closeStep();
  if (row >= 0) byId("group-" + trajectoryOf(row).group.id).scrollIntoView({ block: "start" });
}

onTheme(paintAll);
showOverview();
recipeSwitch();
byId("eps").max = DATA.sweep.length - 1;
byId("eps").addEventListener("input", (event) => { state.eps = Number(event.target.value); changed(); drawSweep(); drawErrors(); });
byId("beside").addEventListener("change", (event) => { state.beside = event.target.value; changed(); });
let typed = 0;
byId("search").addEventListener("input", (event) => {
  clearTimeout(typed);
  typed = setTimeout(() => { state.search = event.target.value; listGroups(); }, 150);
});
for (const [id, name] of [["filter", "filter"], ["sort", "sort"], ["file", "file"]]) byId(id).addEventListener("change", (event) => { state[name] = event.target.value; listGroups(); });
byId("more").addEventListener("click", showMore);
list.addEventListener("click", (event) => { const cell = event.target.closest(".cell"); if (cell) openStep(Number(cell.dataset.row)); });
document.addEventListener("keydown", onKey);
addEventListener("popstate", () => fromAddress().then(paintAll));
drawCharts();
readIndex().then(() => {
  showFindings();
  showRecipes();
  showCompare();
  return fromAddress();
}).catch((error) => { byId("count").textContent = error.message; }).finally(() => { document.documentElement.dataset.ready = "yes"; });
