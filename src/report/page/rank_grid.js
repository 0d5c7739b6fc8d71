// SPDX-License-Identifier: Apache-2.0
// The grid of all ranks, and what those of a cell hold and own.

const runs = (list) => list.slice(0, 8).map(([first, end]) => (end - first === 1 ? `${first}` : `${first}-${end - 1}`)).join(", ") +
  (list.length > 8 ? ", …" : "");
const amount = (list) => list.reduce((sum, [first, end]) => sum + end - first, 0);

/** One cell is in the tab order, arrows go on from there. */
const rankGrid = (section, grid) => {
  const small = grid.cells.length > 256;
  const state = (cell) => (cell.wrong.length ? "wrong" : grid.sampled ? "not looked at one by one" : "right");
  const body = grid.rows.map((row, line) => make("tr", {}, make("th", { scope: "row" }, row),
    ...grid.columns.map((column, at) => {
      const cell = grid.cells[line * grid.columns.length + at];
      const bad = cell.wrong.length > 0;
      const made = make("td", { class: bad ? "bad" : grid.sampled ? "plain" : "good", role: "gridcell", tabindex: line + at === 0 ? 0 : -1,
        "aria-label": `${row}, ${column}, rank ${runs(cell.ranks)}, ${state(cell)}` },
      (bad ? "✗" : small ? "" : grid.sampled ? "·" : "✓") + (small ? "" : ` ${runs(cell.ranks)}`));
      if (bad && small) made.style.setProperty("--share", `${(100 * amount(cell.wrong)) / amount(cell.ranks)}%`);
      return made;
    })));
  const together = small ? Math.ceil(grid.columns.length / 8) : 1;
  const heads = grid.columns.flatMap((column, at) => (at % together ? [] : [make("th",
    { scope: together > 1 ? "colgroup" : "col", colspan: Math.min(together, grid.columns.length - at) }, column)]));
  const table = make("table", { class: small ? "grid small" : "grid", role: "grid", "aria-label": "Ranks" },
    make("thead", {}, make("tr", {}, make("th"), ...heads)),
    make("tbody", {}, ...body));
  const who = make("div", { class: "who", "aria-live": "polite" }, "Point at a cell, or go there with the arrow keys, to see what its ranks hold and own.");
  const tell = (cell, at) => {
    const data = grid.cells[at];
    const holding = grid.holdings[data.holds];
    const several = amount(data.ranks) > 1;
    const names = holding.names.join(", ") + (holding.names_left_out ? `, and ${holding.names_left_out} more` : "");
    who.replaceChildren(
      make("p", {}, make("strong", {}, `${several ? "ranks" : "rank"} ${runs(data.ranks)}`),
        ` · ${grid.rows[Math.floor(at / grid.columns.length)]} · ${grid.columns[at % grid.columns.length]}` +
        (data.wrong.length ? ` · ✗ wrong: ${several ? `${amount(data.wrong)} of ${amount(data.ranks)}, ` : ""}${runs(data.wrong)}`
          : grid.sampled ? ` · ${state(data)}` : " · ✓ right")),
      make("p", {}, `${several ? "its first rank holds" : "holds"} ${count(holding.buffers, "buffer")} of ` +
        count(holding.elements, "element") +
        (data.owned === null ? "" : ` and hands ${data.owned.toLocaleString("en")} of them to its optimizer`)),
      make("p", {}, make("small", {}, names)));
    table.querySelectorAll('[aria-selected="true"]').forEach((other) => other.removeAttribute("aria-selected"));
    cell.setAttribute("aria-selected", "true");
  };
  const cells = [...table.querySelectorAll("td")];
  const index = (target) => cells.indexOf(target.closest("td"));
  table.addEventListener("mouseover", (event) => { if (index(event.target) >= 0) tell(event.target.closest("td"), index(event.target)); });
  table.addEventListener("focusin", (event) => { if (index(event.target) >= 0) tell(event.target.closest("td"), index(event.target)); });
  table.addEventListener("keydown", (event) => {
    const at = index(event.target);
    const width = grid.columns.length;
    const column = at % width;
    const next = { ArrowLeft: column > 0 ? at - 1 : at, ArrowRight: column < width - 1 ? at + 1 : at, ArrowUp: at - width,
      ArrowDown: at + width, Home: at - column, End: at - column + width - 1 }[event.key];
    if (next === undefined || !cells[next]) return;
    event.preventDefault();
    cells[at].tabIndex = -1;
    cells[next].tabIndex = 0;
    cells[next].focus();
  });
  section.querySelector(".scroll, .plain").replaceWith(make("div", { class: "scroll" }, table));
  section.append(who);
};
