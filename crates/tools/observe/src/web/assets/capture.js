// Captures a port's frames into a file that the browser saves.

import { el, say } from "./dom.js";
import { memory, visible } from "./format.js";
import { download } from "./server.js";

const field = (label, input) => el("label", {}, el("span", {}, label), input);
const number = (name, value, least, most) => el("input", { name, type: "number", value, min: least, max: most, required: true });

export class CaptureForm {
  #port;
  #abort;

  constructor(port) {
    this.#port = port;
    const way = el("select", { name: "way" }, [["both", "sent and received"], ["sent", "sent"], ["got", "received"]].map(([value, text]) => el("option", { value }, text)));
    this.button = el("button", { class: "main" }, "Capture");
    this.told = el("p", { class: "dim", role: "status" });
    this.form = el("form", { class: "capture", onsubmit: (event) => this.#submit(event) }, el("h3", {}, "Capture"),
      el("div", { class: "fields" }, field("Which frames", way), field("Seconds, at most", number("seconds", 10, 1, 300)), field("Frames, at most", number("frames", 10000, 1, 1000000)), field("Bytes of each; 0: all", number("snaplen", 0, 0, 65535))),
      el("p", {}, this.button), this.told);
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#abort) return this.#abort.abort();
    const asked = Object.fromEntries(new FormData(this.form));
    this.#abort = new AbortController();
    say(this.button, "Cancel");
    say(this.told, "waiting for frames");
    try {
      const file = await download("/api/capture", { port: this.#port, ...asked }, this.#abort.signal, (bytes) => say(this.told, `${memory(bytes)} so far`));
      this.#save(file);
    } catch (error) {
      say(this.told, error.name === "AbortError" ? "cancelled" : visible(error.message));
    }
    this.#abort = undefined;
    say(this.button, "Capture");
  }

  #save(file) {
    const name = `${this.#port.replace(/[^A-Za-z0-9._-]+/g, "-")}-${new Date().toISOString().replace(/[:.]/g, "-")}.pcapng`;
    const address = URL.createObjectURL(file);
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
    say(this.told, `saved as ${name}: ${memory(file.size)}`);
  }
}
