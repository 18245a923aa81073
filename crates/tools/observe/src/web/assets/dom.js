// Elements and their texts. Text from the daemon becomes text and attributes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) element.append(child);
  }
  return element;
}

export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const by = (id) => document.getElementById(id);

// Changes the document only where the text differs, which is rare.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function put(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function swap(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== undefined && child !== null));
}

// Makes Enter and Space work like a click.
export function pressable(element, action) {
  element.setAttribute("tabindex", "0");
  element.addEventListener("click", action);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      action();
    }
  });
  return element;
}
