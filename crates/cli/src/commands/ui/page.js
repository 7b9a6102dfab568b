"use strict";
// The page asks, the accountant answers: nothing about privacy is computed here.

const $ = (id) => document.getElementById(id);
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const round = (x) => Number(x.toPrecision(3));
const whole = (x) => Math.max(1, Math.round(round(x)));

// Sliders run over logarithms where ratios matter.
const FIELDS = [
  { name: "samples", label: "N, samples", low: 2, high: 7, start: Math.log10(60000), of: (x) => whole(10 ** x) },
  { name: "groups", label: "m, groups a round", low: 0, high: 5, start: Math.log10(256), of: (x) => whole(10 ** x) },
  { name: "group-size", label: "s, samples a group", low: 0, high: 3, start: 0, of: (x) => whole(10 ** x) },
  { name: "epochs", label: "E, epochs", low: 0, high: 3, start: Math.log10(30), of: (x) => whole(10 ** x) },
  { name: "sigma", label: "σ, noise", low: -1, high: 2, start: 0, of: (x) => round(10 ** x) },
  { name: "differing", label: "g, differing samples", low: 0, high: 2, start: 0, of: (x) => whole(10 ** x) },
];
let kept = [];

for (const field of FIELDS) {
  const label = document.createElement("label");
  label.htmlFor = field.name;
  label.innerHTML = `<span>${field.label}</span><output id="${field.name}-value" for="${field.name}"></output>`;
  const input = Object.assign(document.createElement("input"), {
    type: "range", id: field.name, min: field.low, max: field.high, step: "any", value: field.start,
  });
  $("fields").append(label, input);
}

function current() {
  const values = new URLSearchParams();
  const sampling = $("sampling").value;
  const value = {};
  for (const field of FIELDS) {
    value[field.name] = field.of(Number($(field.name).value));
    $(`${field.name}-value`).textContent = value[field.name].toLocaleString("en");
    $(field.name).setAttribute("aria-valuetext", `${value[field.name]}`);
  }
  const hidden = sampling === "poisson" || sampling === "allocate";
  $("group-size").disabled = hidden;
  values.set("sampling", sampling);
  for (const field of FIELDS) {
    if (!(hidden && field.name === "group-size")) values.set(field.name, value[field.name]);
  }
  values.set("delta", $("delta").value);
  return values.toString();
}

function restore(query) {
  for (const [name, value] of new URLSearchParams(query)) {
    const field = FIELDS.find((field) => field.name === name);
    if (field) $(name).value = Math.log10(Number(value));
    else if (name === "sampling" || name === "delta") $(name).value = value;
  }
}

const queries = () => [...kept, current()];
const asked = () => queries().map((query) => `run=${encodeURIComponent(query)}`).join("&");

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// The last question wins, and there is at most one of each kind on its way.
function latest(path, show) {
  let busy = false, wanted = false;
  return async function ask() {
    if (busy) { wanted = true; return; }
    busy = true;
    try { show(await get(path())); } catch (error) { $("message").textContent = error.message; }
    busy = false;
    if (wanted) { wanted = false; ask(); }
  };
}

function showNumbers({ runs }) {
  const run = runs[runs.length - 1];
  $("message").textContent = run.error || run.warning || "";
  $("figures").classList.toggle("stale", Boolean(run.error));
  document.body.dataset.answered = Number(document.body.dataset.answered || 0) + 1;
  if (!run.error) {
    const tile = (value, what) => `<div><b>${escaped(value)}</b><span>${escaped(what)}</span></div>`;
    $("figures").innerHTML = run.guarantees.map((given) => {
      const sees = given.adversary === "A₁" ? "who knows every batch" : "who sees the updates";
      const attack = given.detected[0];
      return tile(`ε ≤ ${given.epsilon}`, `at δ = ${$("delta").value}, against ${given.adversary} ${sees}`)
        + (given.mu ? tile(`µ ≤ ${given.mu}`, `of Gaussian DP, against ${given.adversary}`) : "")
        + tile(attack.detected, `detected at most by ${given.adversary} with ${100 * attack.alpha} % false alarms`);
    }).join("");
    $("rounds").textContent = `${run.rounds.toLocaleString("en")} rounds.`;
    if (run.refused.length) $("message").textContent = `No claim against ${run.refused.join("; ")}`;
    showCommand(run.command);
  }
  const row = (run, i) => {
    const cells = run.error ? `<td>${escaped(run.error)}</td>`
      : `<td>${run.guarantees.map((given) => `${given.adversary}: ε ≤ ${escaped(given.epsilon)}`).join(", ")}</td>`;
    const name = i < kept.length ? `setting ${i + 1}` : `setting ${i + 1}, the sliders`;
    const words = queries()[i].replaceAll("&", ", ").replaceAll("=", " ");
    return `<tr><th scope="row"><i class="dot"></i>${name}</th><td>${escaped(words)}</td>${cells}</tr>`;
  };
  $("kept").innerHTML = runs.length > 1 ? `<table><tbody>${runs.map(row).join("")}</tbody></table><p class="lead">Solid: A₁. Dashed: A₀.
    Dotted: the Gaussian mechanism G_µ below A₁.</p>` : "";
  paint();
}

let colours = [];
function paint() {
  document.querySelectorAll("#kept .dot").forEach((dot, i) => { dot.style.background = colours[i] || "transparent"; });
}

function showCurves(drawn) {
  $("curves").classList.toggle("stale", Boolean(drawn.error));
  if (drawn.error) return;
  $("curves").innerHTML = drawn.svgs.map((svg) => `<figure>${svg}</figure>`).join("");
  colours = drawn.colours;
  paint();
}

// ε at once, everything else when it is known.
function showEpsilons({ runs }) {
  const run = runs[runs.length - 1];
  const tiles = [...$("figures").querySelectorAll("b")].filter((b) => b.textContent.startsWith("ε"));
  if (run.error || run.guarantees.length !== tiles.length) return;
  run.guarantees.forEach((given, i) => { tiles[i].textContent = `ε ≤ ${given.epsilon}`; });
}

const epsilon = latest(() => `api/epsilon?run=${encodeURIComponent(current())}`, showEpsilons);
const numbers = latest(() => `api/explore?${asked()}`, showNumbers);
const curves = latest(() => `api/curves?${asked()}`, showCurves);
let pause;
function changed() {
  current();
  epsilon();
  numbers();
  clearTimeout(pause);
  pause = setTimeout(() => { curves(); remember(); }, 120);
}
function remember() {
  history.replaceState(null, "", `#explore?${asked()}`);
}

$("sliders").addEventListener("input", changed);
$("sliders").addEventListener("submit", (event) => event.preventDefault());
$("keep").addEventListener("click", () => { if (kept.length < 5) kept.push(current()); changed(); });
$("forget").addEventListener("click", () => { kept = []; changed(); });
$("link").addEventListener("click", () => { remember(); copy(location.href, $("link")); });
$("copy").addEventListener("click", () => copy($("command").textContent, $("copy")));
// A line may break before a flag, not inside one.
function showCommand(text) {
  const parts = text.split(/ (?=--)/).map((part) => `<span>${escaped(part)}</span>`);
  $("command").innerHTML = parts.join(" ");
}
async function copy(text, button) {
  const said = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
  catch { button.textContent = "Select it and copy"; }
  setTimeout(() => { button.textContent = said; }, 1500);
}

// Runs.
let chosen = null;
const compared = new Set();
const percent = (x) => x == null ? "–" : `${(100 * x).toFixed(2)} %`;
const number = (x, digits) => x == null ? "–" : Number(x).toFixed(digits);
const verified = {};

function showRuns({ folder, runs }) {
  $("folder").textContent = runs.length ? `The runs in ${folder}.` : `There are no runs in ${folder} yet: dpsgd train makes one.`;
  const focus = document.activeElement && document.activeElement.id;
  $("list").tBodies[0].innerHTML = runs.map((run) => {
    const id = escaped(run.name);
    if (run.error) return `<tr><td></td><th scope="row">${id}</th><td colspan="6" class="bad">${escaped(run.error)}</td></tr>`;
    const state = run.finished ? "finished" : `<progress max="${run.rounds}" value="${run.round}" aria-label="round ${run.round} of ${run.rounds}"></progress> ${run.round}/${run.rounds}`;
    const warn = run.warning ? ` <span class="bad" title="${escaped(run.warning)}">no better than a constant?</span>` : "";
    const note = run.note ? ` <span class="bad">${escaped(run.note)}</span>` : "";
    return `<tr><td><input type="checkbox" id="c-${id}" data-compare="${id}" aria-label="compare ${id}" ${compared.has(run.name) ? "checked" : ""}></td>
      <th scope="row"><a href="#runs?run=${encodeURIComponent(run.name)}" id="r-${id}">${id}</a>${note}</th>
      <td>${state}</td><td>${percent(run.accuracy)}${warn}</td><td>${number(run.auc, 3)}</td><td>${number(run.loss, 4)}</td>
      <td>${run.epsilon ? `≤ ${escaped(run.epsilon)} (${escaped(run.adversary)})` : "–"}</td>
      <td><button type="button" id="v-${id}" data-verify="${id}">Verify</button> <span>${verified[run.name] || ""}</span></td></tr>`;
  }).join("");
  if (focus && $(focus)) $(focus).focus();
}

async function showRun() {
  if ($("runs").hidden) return;
  try {
    showRuns(await get("api/runs"));
    const figures = (list) => `<div class="charts">${list.map((f) => `<figure>${f.svg}<figcaption>${escaped(f.caption)}</figcaption></figure>`).join("")}</div>`;
    if (compared.size > 1) {
      const query = [...compared].map((name) => `run=${encodeURIComponent(name)}`).join("&");
      const found = await get(`api/compare?${query}`);
      $("run").innerHTML = `<h3>${[...compared].map(escaped).join(" and ")}</h3>${figures(found.figures)}`;
    } else if (chosen) {
      const found = await get(`api/run/${encodeURIComponent(chosen)}`);
      const report = found.report ? `<p><a href="report/${encodeURIComponent(chosen)}">Open the report</a></p>` : "";
      const warning = found.standing.warning ? `<p class="bad">${escaped(found.standing.warning)}</p>` : "";
      $("run").innerHTML = `<h3>${escaped(chosen)}</h3>${warning}${report}${figures(found.figures)}`;
    } else $("run").innerHTML = "";
  } catch (error) { $("run").textContent = error.message; }
}
$("list").addEventListener("click", async (event) => {
  const name = event.target.dataset.verify;
  if (!name) return;
  verified[name] = "…";
  showRun();
  try {
    const found = await get(`api/verify/${encodeURIComponent(name)}`);
    verified[name] = found.error ? `<span class="bad">${escaped(found.error)}</span>`
      : found.agrees ? `<span class="fine">${found.finished ? "everything agrees" : "agrees; not finished"}</span>`
      : `<span class="bad">${escaped(found.findings.join("; "))}</span>`;
  } catch (error) { verified[name] = escaped(error.message); }
  showRun();
});
$("list").addEventListener("change", (event) => {
  const name = event.target.dataset.compare;
  if (name) { event.target.checked ? compared.add(name) : compared.delete(name); showRun(); }
});
setInterval(() => { if (document.visibilityState === "visible") showRun(); }, 2000);

// Federation.
const ago = (at, now) => at == null ? "–" : now - at < 3 ? "now" : `${(now - at).toLocaleString("en")} s ago`;
const many = (count) => Number(count).toLocaleString("en");
const reasons = (rejected) => Object.entries(rejected).map(([why, count]) => `${many(count)} ${escaped(why)}`).join(", ") || "none";
const stateOf = (state) => `<span class="${state === "not running" ? "bad" : "fine"}">${escaped(state)}</span>`;
function table(heads, rows) {
  return `<div class="wide"><table><thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

function showCoordinator({ status, state, figures, terms, report }) {
  const now = Math.floor(Date.now() / 1000);
  const tile = (value, what) => `<div><b>${escaped(value)}</b><span>${escaped(what)}</span></div>`;
  const { staleness, measured } = status;
  $("federation-name").textContent = status.name;
  $("federation-state").innerHTML = `The coordinator is ${stateOf(state)}${state === "running" && !status.connected ? `, <span class="bad">without a connection</span>` : ""}
    · ${escaped(status.broker)} · run ${escaped(status.run)}${report ? ` · <a href="federation-report">Open the report</a>` : ""}`;
  $("federation-figures").innerHTML = tile(many(status.version), "steps of the global model")
    + tile(many(status.updates_applied), `updates folded, ${status.rate.toFixed(1)} a second lately`)
    + (measured && measured.accuracy != null ? tile(percent(measured.accuracy), `of the public test set right, version ${many(measured.version)}`)
      : measured ? tile(number(measured.loss, 4), `loss on the public test set, version ${many(measured.version)}`) : "")
    + tile(staleness.mean == null ? "–" : staleness.mean.toFixed(1), `versions old is an update on average; 99 % at most ${staleness.p99 ?? "–"}`)
    + tile(`${status.members.length} of ${many(status.clients)}`, "clients were heard of")
    + tile(many(Object.values(status.updates_rejected).reduce((sum, count) => sum + count, 0)), `updates rejected: ${reasons(status.updates_rejected)}`);
  const rows = status.members.map((member) => `<tr><th scope="row">${member.id}</th><td>${many(member.round)}</td><td>${many(member.applied)}</td>
    <td>${percent(member.applied / Math.max(1, status.updates_applied))}</td><td>${reasons(member.rejected)}</td><td>${ago(member.heard, now)}</td></tr>`);
  $("federation-members").innerHTML = `<h3>Clients, as the coordinator knows them</h3>${table(["Client", "Next round", "Folded", "Share", "Rejected", "Last heard"], rows)}`;
  $("federation-charts").innerHTML = figures.map((f) => `<figure>${f.svg}<figcaption>${escaped(f.caption)}</figcaption></figure>`).join("");
  $("federation-terms").innerHTML = terms ? `<details><summary>Terms</summary><table><tbody>${terms.map(([name, value]) =>
    `<tr><th scope="row">${escaped(name)}</th><td>${escaped(value)}</td></tr>`).join("")}</tbody></table></details>` : "";
}

function showClients(clients) {
  const rows = clients.map(({ name, attendance: client, line, state }) => `<tr><th scope="row"><a href="#runs?run=${encodeURIComponent(name)}">${escaped(name)}</a></th>
    <td>${client.client}</td><td>${stateOf(state)}</td><td><progress max="${Math.max(1, client.rounds)}" value="${client.round}" aria-label="round ${client.round} of ${client.rounds}"></progress> ${many(client.round)}/${many(client.rounds)}</td>
    <td>${escaped(line)}</td><td>${client.epsilon ? `≤ ${escaped(client.epsilon)}` : "–"}</td></tr>`);
  $("federation-clients").innerHTML = clients.length ? `<h3>Clients on this machine</h3>
    <p class="lead">Each keeps its own ledger and states its own guarantee; what stands here never leaves this machine.</p>
    ${table(["Run", "Client", "State", "Rounds", "What it knows", "ε so far"], rows)}` : "";
}

async function showFederation() {
  let found;
  try { found = await get("api/federation"); } catch { return; }
  $("tab-federation").hidden = !found.present;
  if ($("federation").hidden) return;
  const open = $("federation-terms").querySelector("details")?.open;
  if (found.coordinator) showCoordinator(found.coordinator);
  else $("federation-state").textContent = found.present ? "The coordinator runs elsewhere."
    : `There is no federation in ${found.folder}: dpsgd federation init makes one, --federation names another folder.`;
  if (open) $("federation-terms").querySelector("details").open = true;
  showClients(found.clients);
}
setInterval(() => { if (document.visibilityState === "visible") showFederation(); }, 2000);

const PAGES = ["explore", "runs", "federation"];
function turn() {
  const [asked, query] = (location.hash.slice(1) || "explore").split("?");
  const page = PAGES.includes(asked) ? asked : "explore";
  for (const name of PAGES) {
    $(name).hidden = name !== page;
    if (name === page) $(`tab-${name}`).setAttribute("aria-current", "page");
    else $(`tab-${name}`).removeAttribute("aria-current");
  }
  showFederation();
  const given = new URLSearchParams(query || "").getAll("run");
  if (page === "runs") { chosen = given[0] || null; showRun(); }
  else if (page === "explore") {
    if (given.length) { kept = given.slice(0, -1); restore(given[given.length - 1]); }
    changed();
  }
}
addEventListener("hashchange", turn);
turn();
