// SPDX-License-Identifier: Apache-2.0
// From an address to what is shown: scenarios that are packed, the list with its filters.

// Scenarios that are packed: like parts of all of them stand behind one another, and each stream is packed by itself.
const packed = (() => {
  const source = document.getElementById("packed");
  const works = source && typeof DecompressionStream === "function";
  return works ? JSON.parse(source.textContent) : { rows: [], streams: [] };
})();
const packedAt = new Map(packed.rows.map((row, at) => [fileOf(rows[row]), at]));
let unpacked = null;
const unpack = async (stream) => {
  const bytes = Uint8Array.from(atob(stream), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return (await new Response(plain).text()).split("\x1e");
};

/** The article of a file with all that belongs to it; null where the page has none. */
const stages = new Map();
const open = async (file) => {
  let article = articles.get(file) || null;
  if (stages.has(article)) return article;
  if (packedAt.has(file)) {
    unpacked = unpacked || Promise.all(packed.streams.map(unpack));
    const whole = make("template");
    whole.innerHTML = (await unpacked).map((parts) => parts[packedAt.get(file)]).join("");
    const before = articles.get(file);
    if (stages.has(before)) return before;  // Somebody else was faster.
    article = whole.content.querySelector("article");
    article.hidden = true;
    if (before) before.replaceWith(article);
    else document.getElementById("main").append(article);
    articles.set(file, article);
  }
  if (!article) return null;
  const data = Object.assign({}, ...[...article.querySelectorAll('script[type="application/json"]')].map((one) => JSON.parse(one.textContent)));
  if (data.grid) rankGrid(article.querySelector(".ranks"), data.grid);
  stages.set(article, data.timelines && data.timelines.length ? new Stage(article.querySelector(".stage"), data) : null);
  return article;
};

const navigation = document.getElementById("navigation");
const link = (file, text) => make("a", { href: `#file=${encode(file)}` }, text);
const navigate = (file) => {
  const files = rows.filter((row) => !row.hidden && row.querySelector("a")).map(fileOf);
  const at = files.indexOf(file);
  navigation.replaceChildren(...(file === null ? [] : [make("a", { href: "#list" }, "All scenarios"),
    at > 0 ? link(files[at - 1], "‹ Previous") : null, at >= 0 && at + 1 < files.length ? link(files[at + 1], "Next ›") : null])
    .filter((one) => one));
};

let routes = 0;
const route = async (focus) => {
  const parts = address();
  const known = articles.has(parts.file) || packedAt.has(parts.file);
  const file = known ? parts.file : list ? null : [...articles.keys()][0];
  routes += 1;
  const mine = routes;
  for (const stage of stages.values()) if (stage) stage.stop();
  if (list) {
    list.hidden = file !== null;
    navigate(file);
  }
  for (const [name, one] of articles) one.hidden = name !== file;
  const article = file === null ? null : await open(file);
  if (mine !== routes) return;
  document.title = article ? `${article.querySelector("h2").textContent} · lockstep` : "lockstep report";
  if (!article) return;
  article.hidden = false;
  const stage = stages.get(article);
  if (stage) {
    const wanted = stage.data.timelines.findIndex((timeline) => timeline.parameter === parts.parameter);
    const [, name, micro] = /^(.*?)(?:\[(\d+)\])?$/.exec(parts.step || "");
    stage.choose(Math.max(0, wanted), name, micro === undefined ? null : Number(micro));
  }
  if (focus) article.querySelector("h2").focus({ preventScroll: true });
  scrollTo(0, 0);
};

if (list) {
  for (const row of rows) {
    const cell = row.cells[1];
    if (packedAt.has(fileOf(row)) && !cell.querySelector("a")) cell.firstChild.replaceWith(link(fileOf(row), cell.firstChild.textContent));
  }
  if (packedAt.size === rows.length) document.getElementById("left-out").hidden = true;
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const folder = (row) => fileOf(row).split("/").slice(0, -1).join("/") || ".";
  const choices = (values) => [make("option", { value: "" }, "all"),
    ...[...new Set(values)].sort().map((value) => make("option", { value }, value.replace("_", " ")))];
  const search = make("input", { type: "search", placeholder: "title, file or step" });
  const verdict = make("select", {}, ...choices(rows.map((row) => row.dataset.verdict)));
  const folders = make("select", {}, ...choices(rows.map(folder)));
  const expected = make("select", {}, make("option", { value: "" }, "all"), make("option", { value: "met" }, "as expected"),
    make("option", { value: "unmet" }, "not as expected"), make("option", { value: "none" }, "nothing expected"));
  const shown = make("output", { "aria-live": "polite" });
  const filter = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    let visibleRows = 0;
    rows.forEach((row, index) => {
      row.hidden = !(wanted.every((word) => texts[index].includes(word)) && (!verdict.value || row.dataset.verdict === verdict.value) &&
        (!folders.value || folder(row) === folders.value) && (!expected.value || row.dataset.expected === expected.value));
      visibleRows += row.hidden ? 0 : 1;
    });
    shown.textContent = `${visibleRows} of ${rows.length} shown`;
  };
  for (const field of [search, verdict, folders, expected]) field.addEventListener("input", filter);
  document.getElementById("filters").append(make("label", {}, "Search", search), make("label", {}, "Verdict", verdict),
    make("label", {}, "Folder", folders), make("label", {}, "Expectation", expected), shown);
  filter();
}
addEventListener("hashchange", () => route(true));
const redraw = () => {
  for (const stage of stages.values()) if (stage && !stage.section.closest("[hidden]")) stage.show(stage.at, true);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// Paper has what is folded away on the screen.
let unfolded = [];
addEventListener("beforeprint", () => {
  printing = true;
  unfolded = [...document.querySelectorAll("article:not([hidden]) details:not([open])")];
  for (const one of unfolded) one.open = true;
  redraw();
});
addEventListener("afterprint", () => {
  printing = false;
  for (const one of unfolded) one.open = false;
  redraw();
});
route(false);
