// SPDX-License-Identifier: Apache-2.0
// A formula as colours: how much of each rank's share is in it.

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
