// SPDX-License-Identifier: Apache-2.0
// Reads the JSON that is embedded beside each scenario, and nothing else. Without this script the page has the same
// findings as tables, of many scenarios the wrong ones: the rest is packed, and unpacked here.
"use strict";
(() => {
  const articles = new Map([...document.querySelectorAll("article")].map((one) => [one.dataset.file, one]));
  const list = document.getElementById("list");
  const rows = list ? [...list.querySelectorAll("tbody tr")] : [];
  const fileOf = (row) => row.querySelector("small").textContent;
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;

  // Addresses: #file=…&parameter=…&step=….
  const address = () => {
    const parts = {};
    for (const part of location.hash.slice(1).split("&")) {
      const equals = part.indexOf("=");
      if (equals < 0) continue;
      try {
        parts[part.slice(0, equals)] = decodeURIComponent(part.slice(equals + 1));
      } catch {
        // A broken address leads to the list.
      }
    }
    return parts;
  };
  const encode = (text) => encodeURIComponent(text).replace(/%2F/g, "/");
  const write = (parts) => {
    const hash = Object.entries(parts).map(([key, value]) => `${key}=${encode(value)}`).join("&");
    if (`#${hash}` !== location.hash) history.replaceState(null, "", `#${hash}`);
  };

  // Ranks have colours of their own as long as these can be told apart.
  const hue = (rank) => Math.round((215 + rank * 137.508) % 360);
  /** How much of each rank's share a formula holds; null where it is more than sums, factors and quotients of shares. */
  const shares = (formula) => {
    const tokens = formula.match(/g\d+(?:\.[\w.]+)?|\d+|[-+*/()]|\S/g) || [];
    let at = 0;
    const scaled = (map, by) => new Map([...map].map(([rank, value]) => [rank, value * by]));
    const atom = () => {
      const token = tokens[at];
      at += 1;
      if (token === "(") {
        const inner = sum();
        if (tokens[at] !== ")") throw new SyntaxError(formula);
        at += 1;
        return inner;
      }
      if (token === "-") return scaled(atom(), -1);
      if (/^\d+$/.test(token)) return new Map([["", Number(token)]]);
      if (/^g\d/.test(token)) return new Map([[Number(/\d+/.exec(token)[0]), 1]]);
      throw new SyntaxError(formula);
    };
    const product = () => {
      let left = atom();
      while (tokens[at] === "*" || tokens[at] === "/") {
        const divided = tokens[at] === "/";
        at += 1;
        const right = atom();
        const number = right.get("");
        if (number !== undefined) left = scaled(left, divided ? 1 / number : number);
        else if (!divided && left.has("")) left = scaled(right, left.get(""));
        else throw new SyntaxError(formula);
      }
      return left;
    };
    const sum = () => {
      const left = new Map(product());
      while (tokens[at] === "+" || tokens[at] === "-") {
        const sign = tokens[at] === "+" ? 1 : -1;
        at += 1;
        for (const [rank, value] of product()) left.set(rank, (left.get(rank) || 0) + sign * value);
      }
      return left;
    };
    try {
      const all = sum();
      if (at < tokens.length) return null;
      return [...all].filter(([rank, value]) => rank !== "" && value !== 0).sort((a, b) => a[0] - b[0]);
    } catch {
      return null;
    }
  };

  /** The bar of a slice: a stripe for each rank whose share is in it, as wide as its weight. */
  const fill = (formula, stale) => {
    const parts = shares(formula);
    const light = dark() ? 46 : 74;
    const stripes = [];
    if (parts === null || parts.length > 12) {
      stripes.push("var(--accent-soft) 0 100%");
    } else {
      const all = parts.reduce((total, part) => total + Math.abs(part[1]), 0);
      let from = 0;
      for (const [rank, value] of parts) {
        const to = from + (100 * Math.abs(value)) / all;
        stripes.push(`hsl(${hue(rank)} 55% ${light}%) ${from}% ${to}%`);
        from = to;
      }
    }
    const mixed = stripes.length ? `linear-gradient(90deg, ${stripes.join(", ")})` : "none";
    const hatch = "repeating-linear-gradient(45deg, var(--paper) 0 4px, transparent 4px 8px)";
    return stale ? `${hatch}, ${mixed}` : mixed;
  };

  const range = (elements) => `[${elements[0]}, ${elements[1]})`;
  const words = { "~": "stale: another rank owns it", "*": "handed to this rank's optimizer", "✗": "wrong" };

  /** The states of a timeline: after each step, what every rank holds of every range. */
  const states = (timeline) => {
    const buffers = {};
    return timeline.steps.map((step) => {
      const held = new Map(buffers[step.buffer] || []);
      const changed = new Set();
      for (const [rank, part, formula, marks] of step.cells) {
        held.set(`${timeline.ranks[rank]}/${part}`, { formula: timeline.formulas[formula], marks });
        changed.add(timeline.ranks[rank]);
      }
      buffers[step.buffer] = held;
      return { held, changed };
    });
  };

  const title = (step, several) =>
    `after ${step.step}` + (several && step.micro_batch !== null ? `, micro-batch ${step.micro_batch}` : "") +
    (step.buffer === "grad" ? "" : ` (buffer ${step.buffer})`);
  const short = (step, several) => step.step + (several && step.micro_batch !== null ? `[${step.micro_batch}]` : "");

  class Stage {
    constructor(section, data) {
      this.section = section;
      this.data = data;
      this.timer = null;
      this.blamed = new Set((data.blame || []).map((blame) => blame.step));
      section.hidden = false;
      section.append(make("h3", {}, "Step by step"));
      if (data.timelines_at) {
        section.append(make("p", { class: "stand-in" }, "The ranks of a large layout are not replayed one by one. This is the same file at ",
          make("strong", {}, data.timelines_at), ", with the same outcome."));
      }
      this.choice = make("select", { onchange: () => this.choose(Number(this.choice.value)) },
        ...data.timelines.map((timeline, index) => make("option", { value: index }, timeline.parameter)));
      section.append(data.timelines.length > 1
        ? make("div", { class: "choose" }, make("label", {}, "Parameter ", this.choice))
        : make("p", {}, make("code", {}, data.timelines[0].parameter)));
      this.back = make("button", { type: "button", "aria-label": "Step back", onclick: () => this.move(-1) }, "‹");
      this.forth = make("button", { type: "button", "aria-label": "Step forth", onclick: () => this.move(1) }, "›");
      this.button = make("button", { type: "button", class: "play", onclick: () => this.play() }, "▶ Play");
      this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step of the schedule",
        oninput: () => { this.stop(); this.show(Number(this.slider.value)); } });
      this.chips = make("ol", { class: "chips", "aria-label": "Steps" });
      this.now = make("p", { class: "now" });
      this.board = make("div", { class: "board", tabindex: "0", role: "group", "aria-label": "What the ranks hold" });
      this.notes = make("p", { class: "legend" });
      this.live = make("p", { class: "sr", "aria-live": "polite" });
      section.append(make("div", { class: "player", role: "group", "aria-label": "Player" },
        this.button, this.back, this.slider, this.forth), this.chips, this.now, this.board, this.notes, this.live);
      this.board.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (by && this.board.scrollWidth <= this.board.clientWidth) {
          event.preventDefault();
          this.stop();
          this.move(by);
        }
      });
      this.board.addEventListener("mouseover", (event) => {
        const cell = event.target.closest("td[data-rank]");
        this.peers(cell ? Number(cell.dataset.rank) : -1);
      });
      new ResizeObserver(() => this.arrows()).observe(this.board);
    }

    choose(index, name, micro) {
      this.stop();
      this.timeline = this.data.timelines[index];
      this.choice.value = index;
      this.states = states(this.timeline);
      const steps = this.timeline.steps;
      this.several = steps.some((step) => step.micro_batch > 0);
      this.slider.max = steps.length - 1;
      this.chips.replaceChildren(...steps.map((step, at) => make("li", {}, make("button", {
        type: "button", class: this.blamed.has(step.step) ? "fault" : null,
        onclick: () => { this.stop(); this.show(at); },
      }, (this.blamed.has(step.step) ? "✗ " : "") + short(step, this.several)))));
      let at = steps.findLastIndex((step) => step.step === name && (micro === null || step.micro_batch === micro));
      if (at < 0) at = steps.findLastIndex((step) => this.blamed.has(step.step) && step.changed);
      if (at < 0) at = Math.max(0, steps.findLastIndex((step) => step.changed));
      this.show(at, true);
    }

    show(at, quiet = false) {
      const step = this.timeline.steps[at];
      this.at = at;
      this.slider.value = at;
      this.slider.setAttribute("aria-valuetext", `${title(step, this.several)}, ${at + 1} of ${this.timeline.steps.length}`);
      this.back.disabled = at === 0;
      this.forth.disabled = at === this.timeline.steps.length - 1;
      [...this.chips.querySelectorAll("button")].forEach((chip, index) => {
        if (index === at) chip.setAttribute("aria-current", "step");
        else chip.removeAttribute("aria-current");
      });
      const groups = step.groups.length ? ` · ${step.op.replace("_", "-")} among ` +
        step.groups.slice(0, 4).map((group) => `{${group.join(", ")}}`).join(", ") + (step.groups.length > 4 ? ", …" : "")
        : ` · ${step.op.replace("_", "-")} on each rank`;
      this.now.replaceChildren(make("strong", {}, title(step, this.several)), make("small", {}, groups + (step.changed ? "" : " · unchanged")));
      this.draw(step);
      if (quiet) return;
      this.live.textContent = `${title(step, this.several)}: ` + [...this.board.querySelectorAll("td[data-rank]")].slice(0, 16)
        .map((cell) => cell.getAttribute("aria-label")).join("; ");
      this.remember();
    }

    remember() {
      const step = this.timeline.steps[this.at];
      const parts = { file: this.data.file };
      if (this.data.timelines.length > 1) parts.parameter = this.timeline.parameter;
      parts.step = short(step, this.several);
      write(parts);
    }

    draw(step) {
      const { held, changed } = this.states[this.at];
      const tables = this.timeline.blocks.map((block) => make("table", {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, block.title || ""),
          ...this.timeline.columns.map((column) => make("th", { scope: "col" }, column)))),
        make("tbody", {}, ...this.timeline.rows.map((row, index) => make("tr", {}, make("th", { scope: "row" }, row),
          ...block.ranks[index].map((rank) => this.cell(rank, held, changed.has(rank))))))));
      this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.svg.setAttribute("aria-hidden", "true");
      this.board.replaceChildren(make("div", {}, ...tables), this.reference(), this.svg);
      this.legend(held);
      this.arrows();
      return step;
    }

    /** A slice of a buffer as a bar, and what it holds. */
    segment(bar, part, formula, kind) {
      const elements = this.timeline.ranges[part];
      const segment = make("span", { class: kind, title: `${range(elements)}: ${formula}` });
      segment.style.flexGrow = Math.max(1, Math.sqrt(elements[1] - elements[0]));
      segment.style.backgroundImage = fill(formula, kind === "stale");
      bar.append(segment);
    }

    line(part, text, kind) {
      return make("span", { class: `cellline ${kind}` },
        this.timeline.ranges.length > 1 ? make("small", {}, `${range(this.timeline.ranges[part])} `) : null,
        make("span", { class: "f" }, text));
    }

    /** What one device has, to compare with. */
    reference() {
      const bar = make("div", { class: "bar", "aria-hidden": "true" });
      const card = make("div", { class: "reference" }, make("div", { class: "rank" }, "one device"), bar);
      this.timeline.expected.forEach((formula, part) => {
        this.segment(bar, part, formula, "");
        card.append(this.line(part, formula, ""));
      });
      return card;
    }

    cell(rank, held, changed) {
      if (rank < 0 || !this.timeline.ranges.some((_, part) => held.has(`${rank}/${part}`))) {
        return make("td", { class: "empty" }, rank < 0 ? "" : "·");
      }
      const bar = make("div", { class: "bar", "aria-hidden": "true" });
      const lines = [];
      const spoken = [];
      let bad = false;
      let owner = false;
      this.timeline.ranges.forEach((_, part) => {
        const content = held.get(`${rank}/${part}`);
        if (!content) return;
        const marks = [...content.marks];
        const kind = marks.includes("✗") ? "bad" : marks.includes("~") ? "stale" : "";
        bad = bad || kind === "bad";
        owner = owner || marks.includes("*");
        this.segment(bar, part, content.formula, kind);
        lines.push(this.line(part, [content.formula, ...marks].join(" "), kind));
        spoken.push([content.formula, ...marks.map((mark) => words[mark])].join(", "));
      });
      return make("td", { "data-rank": rank, class: [bad ? "bad" : "", changed ? "changed" : ""].join(" ").trim() || null,
        "aria-label": `rank ${rank}: ${spoken.join("; ")}` },
      make("div", { class: "rank" }, make("span", {}, `rank ${rank}`), owner ? make("span", {}, "owns") : null), bar, ...lines);
    }

    legend(held) {
      const marks = new Set([...held.values()].flatMap((content) => [...content.marks]));
      const items = [make("span", {}, make("i"), "a slice of the buffer: each rank's share has its colour, as wide as its weight")];
      if (marks.has("~")) items.push(make("span", {}, make("i", { class: "stale" }), "~ stale: another rank owns it"));
      if (marks.has("*")) items.push(make("span", {}, "* handed to this rank's optimizer"));
      if (marks.has("✗")) {
        items.push(make("span", {}, make("i", { class: "bad" }), "✗ wrong: not what one device has"));
      }
      if (this.timeline.ranks_left_out) items.push(make("span", {}, `not shown: ${this.timeline.ranks_left_out}`));
      if (this.timeline.ranges_left_out) {
        items.push(make("span", {}, `not shown: ${count(this.timeline.ranges_left_out, "more range")} of elements`));
      }
      if (this.timeline.steps_left_out) items.push(make("span", {}, `not shown: ${count(this.timeline.steps_left_out, "step")} of other micro-batches`));
      this.notes.replaceChildren(...items);
    }

    /** A line between neighbours of each group that communicates in this step. */
    arrows() {
      if (!this.svg || !this.svg.isConnected) return;
      const groups = this.timeline.steps[this.at].groups;
      const origin = this.board.getBoundingClientRect();
      this.svg.setAttribute("width", 1);
      this.svg.setAttribute("height", 1);
      const marker = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" ' +
        'orient="auto-start-reverse" markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z"/></marker>';
      const place = (rank) => {
        const cell = this.board.querySelector(`td[data-rank="${rank}"]`);
        if (!cell) return null;
        const box = cell.getBoundingClientRect();
        const left = box.left - origin.left + this.board.scrollLeft;
        const top = box.top - origin.top + this.board.scrollTop;
        return { table: cell.closest("table"), row: cell.parentElement.rowIndex, column: cell.cellIndex, left, top, right: left + box.width, bottom: top + box.height, x: left + box.width / 2, y: top + box.height / 2 };
      };
      const paths = [];
      for (const group of groups.slice(0, 64)) {
        for (let index = 1; index < group.length; index += 1) {
          const from = place(group[index - 1]);
          const to = place(group[index]);
          if (!from || !to) continue;
          if (from.table !== to.table) continue;  // A line across tables would run through other ranks.
          const line = this.connect(from, to);
          paths.push(`<path d="${line}" marker-start="url(#tip)" marker-end="url(#tip)"/>`);
        }
      }
      this.svg.innerHTML = `<defs>${marker}</defs>${paths.join("")}`;
    }

    /** From card to card: straight between neighbours, else in a bow around what lies between. */
    connect(from, to) {
      if (from.row === to.row) {
        if (Math.abs(from.column - to.column) === 1) {
          return from.x < to.x ? `M${from.right} ${from.y}L${to.left} ${to.y}` : `M${from.left} ${from.y}L${to.right} ${to.y}`;
        }
        return `M${from.x} ${from.top}Q${(from.x + to.x) / 2} ${from.top - 34} ${to.x} ${to.top}`;
      }
      if (from.column === to.column && Math.abs(from.row - to.row) > 1) {
        return `M${from.right} ${from.y}Q${from.right + 44} ${(from.y + to.y) / 2} ${to.right} ${to.y}`;
      }
      return from.y < to.y ? `M${from.x} ${from.bottom}L${to.x} ${to.top}` : `M${from.x} ${from.top}L${to.x} ${to.bottom}`;
    }

    /** The ranks that communicate with this one in the step. */
    peers(rank) {
      const group = this.timeline.steps[this.at].groups.find((one) => one.includes(rank)) || [];
      for (const cell of this.board.querySelectorAll("td[data-rank]")) {
        cell.classList.toggle("peer", group.includes(Number(cell.dataset.rank)));
      }
    }

    move(by) {
      const at = this.at + by;
      if (at >= 0 && at < this.timeline.steps.length) this.show(at);
    }

    play() {
      if (this.timer) return this.stop();
      if (this.at === this.timeline.steps.length - 1) this.show(0);
      this.button.textContent = "❚❚ Pause";
      this.timer = setInterval(() => {
        if (this.at === this.timeline.steps.length - 1) this.stop();
        else this.move(1);
      }, 1400);
      return undefined;
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.button.textContent = "▶ Play";
    }
  }

  const runs = (list) => list.slice(0, 8).map(([first, end]) => (end - first === 1 ? `${first}` : `${first}-${end - 1}`)).join(", ") +
    (list.length > 8 ? ", …" : "");
  const amount = (list) => list.reduce((sum, [first, end]) => sum + end - first, 0);

  /** The grid of all ranks: one cell is in the tab order, arrows go on from there. */
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
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const stage of stages.values()) if (stage && stage.section.checkVisibility()) stage.show(stage.at, true);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("article:not([hidden]) details").forEach((one) => { one.open = true; }));
  route(false);
})();
