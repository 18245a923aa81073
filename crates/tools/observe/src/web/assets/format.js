// Formats figures for people.

import { KINDS } from "./kinds.js";

const PREFIXES = ["", "K", "M", "G", "T", "P"];

function scaled(value, base) {
  let at = 0;
  while (Math.abs(value) >= base && at < PREFIXES.length - 1) {
    value /= base;
    at += 1;
  }
  return [value, PREFIXES[at]];
}

// Formats a number with at most three digits: 14.9M, 640, 0.5.
export function si(value) {
  const [part, prefix] = scaled(value, 1000);
  const digits = prefix === "" ? (part > 0 && part < 10 && !Number.isInteger(part) ? 1 : 0) : part < 10 ? 2 : part < 100 ? 1 : 0;
  return part.toFixed(digits) + prefix;
}

export function memory(bytes) {
  const [part, prefix] = scaled(bytes, 1024);
  return prefix === "" ? `${part} B` : `${part.toFixed(1)} ${prefix}iB`;
}

const GROUPED = new Intl.NumberFormat("en");
export const count = (value) => GROUPED.format(value);
export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
export const plural = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`;

// Directional and control characters could make a name look like another one.
export const visible = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\u{fffd}");

// Returns a port's name within its switch.
export function short(port) {
  const text = visible(port.name);
  const prefix = port.switch ? `${visible(port.switch)}:` : "";
  return prefix && text.startsWith(prefix) ? text.slice(prefix.length) : text;
}

export const kind = (port) => KINDS[port.kind] ?? visible(port.kind);
export const isGuest = (port) => kind(port).startsWith("guest");
