// Explores the fabrics of a report: queues over time, the numbers of a link, the paths of a message.
//
// Each element of class "explorer" holds a map, controls, and its values as JSON. Shapes of the map
// name their link (data-link, both directions) or their port (data-port, one direction): link i has
// the ports 2 i and 2 i + 1. What is chosen is kept in the address, so that it can be sent to others.
"use strict";

// Colours of an empty queue to the deepest one.
const DEPTHS = [[232, 237, 243], [253, 208, 140], [244, 140, 60], [205, 60, 30], [110, 10, 20]];
const FRAMES_A_SECOND = 25;

function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (DEPTHS.length - 1);
  const low = Math.min(Math.floor(at), DEPTHS.length - 2);
  const mixed = DEPTHS[low].map((value, i) => value + (DEPTHS[low + 1][i] - value) * (at - low));
  return `rgb(${mixed.map(Math.round).join(",")})`;
}

const kilobytes = (bytes) => `${(bytes / 1e3).toFixed(1)} kB`;

// Hops from a device to all others, by links between devices.
function hops(from, links, devices) {
  const near = Array.from({ length: devices }, () => []);
  for (const [a, b] of links) { near[a].push(b); near[b].push(a); }
  const found = new Array(devices).fill(Infinity);
  found[from] = 0;
  for (const row = [from]; row.length > 0;) {
    const device = row.shift();
    for (const next of near[device]) {
      if (found[next] === Infinity) { found[next] = found[device] + 1; row.push(next); }
    }
  }
  return found;
}

// Links on a shortest path between two devices.
function between(source, destination, links, devices) {
  const [there, back] = [source, destination].map((end) => hops(end, links, devices));
  const whole = there[destination];
  return links.map(([a, b]) => Math.min(there[a] + back[b], there[b] + back[a]) + 1 === whole);
}

class Explorer {
  constructor(place) {
    this.place = place;
    this.run = place.dataset.run;
    this.values = JSON.parse(place.querySelector("script").textContent);
    this.links = this.values.ports.filter((_, port) => port % 2 === 0);
    this.slider = place.querySelector("input");
    this.slider.max = this.values.frames - 1;
    this.time = place.querySelector("output");
    this.button = place.querySelector("button");
    this.select = place.querySelector("select");
    this.shown = place.querySelector(".shown");
    this.deepest = Math.max(1, ...Object.values(this.values.queues).map((depths) =>
      depths.reduce((most, value, i) => (i % 2 ? Math.max(most, value) : most), 0)));
    this.queues = new Map(Object.entries(this.values.queues).map(([port, depths]) => {
      const frames = new Map();
      for (let i = 0; i < depths.length; i += 2) frames.set(depths[i], depths[i + 1]);
      return [Number(port), frames];
    }));
    // Nothing is chosen: the map shows the whole run.
    this.frame = null;
    this.link = null;
    this.takeShapes();
    this.offerMessages();
    this.listen();
    place.querySelector(".controls").hidden = false;
    this.show();
  }

  takeShapes() {
    this.shapes = [...this.place.querySelectorAll("[data-link],[data-port]")].map((shape) => {
      const attribute = shape.tagName === "line" ? "stroke" : "fill";
      const { link, port } = shape.dataset;
      const ports = port === undefined ? [2 * link, 2 * link + 1] : [Number(port)];
      return { shape, attribute, ports, colour: shape.getAttribute(attribute) };
    });
    for (const one of this.shapes) {
      const point = () => { this.link = one.ports[0] >> 1; this.show(); };
      one.shape.addEventListener("pointerenter", point);
      if (one.attribute !== "stroke") continue;
      // A thin line is hard to point at: a broad one, which is not seen, lies on it.
      const broad = one.shape.cloneNode();
      broad.removeAttribute("data-link");
      broad.setAttribute("stroke-width", "9");
      broad.setAttribute("stroke-opacity", "0");
      broad.setAttribute("pointer-events", "stroke");
      broad.addEventListener("pointerenter", point);
      one.shape.parentNode.append(broad);
    }
  }

  offerMessages() {
    this.values.messages.forEach(([name, from, to, bytes, start, end], index) => {
      const [source, destination] = [from, to].map((device) => this.values.names[device]);
      const took = (end - start).toFixed(1);
      const text = `${name}: ${source} to ${destination}, ${kilobytes(bytes)}, ${took} us`;
      this.select.append(new Option(text, index));
    });
  }

  listen() {
    this.slider.addEventListener("input", () => { this.pause(); this.at(Number(this.slider.value)); });
    this.button.addEventListener("click", () => (this.timer ? this.pause() : this.play()));
    this.select.addEventListener("change", () => this.follow());
  }

  play() {
    this.button.textContent = "Pause";
    if (this.frame === null || this.frame >= this.values.frames - 1) this.frame = -1;
    this.timer = setInterval(() => {
      this.at(this.frame + 1);
      if (this.frame >= this.values.frames - 1) this.pause();
    }, 1000 / FRAMES_A_SECOND);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = undefined;
    this.button.textContent = "Play";
  }

  at(frame) {
    this.frame = Math.min(Math.max(frame, 0), this.values.frames - 1);
    this.show();
  }

  // The map shows the paths of the chosen message, at the middle of its time.
  follow() {
    const message = this.values.messages[this.select.value];
    if (this.select.value === "" || !message) { this.show(); return; }
    const [, , , , start, end] = message;
    this.at(Math.round((start + end) / 2 / this.values.frame_us));
  }

  queue(port) {
    return this.queues.get(port)?.get(this.frame) ?? 0;
  }

  show() {
    const message = this.select.value === "" ? null : this.values.messages[this.select.value];
    const devices = this.values.names.length;
    const path = message && between(message[1], message[2], this.links, devices);
    for (const { shape, attribute, ports, colour } of this.shapes) {
      const depth = Math.max(...ports.map((port) => this.queue(port)));
      const now = this.frame === null ? colour : shade(depth / this.deepest);
      shape.setAttribute(attribute, now);
      shape.classList.toggle("followed", Boolean(path && path[ports[0] >> 1]));
      shape.classList.toggle("aside", Boolean(path && !path[ports[0] >> 1]));
      shape.classList.toggle("pointed", this.link === ports[0] >> 1);
    }
    const time = this.frame * this.values.frame_us;
    this.time.textContent = this.frame === null
      ? "(the whole run is shown)"
      : `${time.toFixed(1)} us; the darkest is ${kilobytes(this.deepest)}`;
    if (this.frame !== null) this.slider.value = this.frame;
    this.shown.textContent = [message && this.ofMessage(message, path), this.ofLink()]
      .filter(Boolean).join(" ");
    this.remember();
  }

  ofMessage([name, from, to, bytes, start, end, slowdown], path) {
    const ends = `${this.values.names[from]} to ${this.values.names[to]}`;
    const links = path.filter(Boolean).length;
    const slower = slowdown ? `, ${slowdown.toFixed(2)} times as long as alone` : "";
    return `${name}, ${ends}, ${kilobytes(bytes)}: from ${start.toFixed(1)} to ${end.toFixed(1)} us` +
      `${slower}; its packets may take ${links} links.`;
  }

  ofLink() {
    if (this.link === null) return "";
    const of = (port) => {
      const [from, to, used, lost, peak] = this.values.ports[port];
      const now = this.frame === null ? "" : `, queue now ${kilobytes(this.queue(port))}`;
      return `${this.values.names[from]} to ${this.values.names[to]}: ${used} % used, ` +
        `${lost} dropped, deepest queue ${kilobytes(peak)}${now}.`;
    };
    return `${of(2 * this.link)} ${of(2 * this.link + 1)}`;
  }

  remember() {
    const chosen = new URLSearchParams({ run: this.run });
    if (this.frame !== null) chosen.set("frame", this.frame);
    if (this.link !== null) chosen.set("link", this.link);
    if (this.select.value !== "") chosen.set("message", this.select.value);
    if ([...chosen].length > 1) history.replaceState(null, "", `#${chosen}`);
  }

  // Shows what an address has kept.
  recall(chosen) {
    const number = (key) => (/^\d+$/.test(chosen.get(key) ?? "") ? Number(chosen.get(key)) : null);
    if (number("message") < this.values.messages.length) this.select.value = number("message") ?? "";
    this.link = number("link") < this.links.length ? number("link") : null;
    const frame = number("frame");
    if (frame !== null) this.at(frame); else this.follow();
  }
}

const chosen = new URLSearchParams(location.hash.slice(1));
for (const place of document.querySelectorAll(".explorer")) {
  const explorer = new Explorer(place);
  if (chosen.get("run") === explorer.run) explorer.recall(chosen);
}
