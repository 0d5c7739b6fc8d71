// SPDX-License-Identifier: Apache-2.0
// What the other scripts share: the scenarios of the page, elements, and its address.

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
let printing = false;  // Paper is light, whatever the screen is.
const dark = () => !printing && matchMedia("(prefers-color-scheme: dark)").matches;

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
