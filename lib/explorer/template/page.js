"use strict";

// The numbers: every passage of a question is a line, height - lambda * slope (lib/explorer/lines.py).

const LAM_MAX = 2;
const K = 5;
const STEPS = 1e5; // scores are compared in steps of 1e-5, as lib/search/index.py does
const CLASSES = ["right", "both", "wrong", "on topic", "neither", "not judged"];
const GOOD = new Set(["right", "both"].map((name) => CLASSES.indexOf(name)));
const NOT_JUDGED = CLASSES.indexOf("not judged");
const COLOURS = ["--right", "--both", "--wrong", "--topic", "--neither", "--unjudged"];
const CHOICES = {
  "one mimic": ["own", "random", "rotation"],
  "question added": ["own", "random", "rotation"],
  "several mimics": ["own"],
};
const MIMICS = {
  own: "the question's own",
  random: "another question's",
  rotation: "matched rotation (same turn, wrong mimic)",
};
// What the search with lambda 0 is called, by form.
const STARTS = {
  "one mimic": "H+ alone",
  "question added": "H+, question added",
  "several mimics": "H+ alone",
};
const FORMS = {
  "one mimic": "one mimic (the paper's)",
  "question added": "one mimic, question added",
  "several mimics": "the nearest of several mimics",
};

function linesOf(question, form, mimic) {
  const n = question.length;
  const height = new Float64Array(n);
  const slope = new Float64Array(n);
  const c = question.c_own;
  const x = question.c_random;
  const side = Math.sqrt(1 - c * c);
  const norm = Math.sqrt(1 - x * x);
  for (let i = 0; i < n; i++) {
    const at = question.start + i;
    const plus = data.plus[at];
    height[i] = form === "question added" ? plus + data.question[at] : plus;
    if (form === "several mimics") slope[i] = data.several[at];
    else if (mimic === "own") slope[i] = data.own[at];
    else if (mimic === "random") slope[i] = data.random[at];
    else slope[i] = c * plus + (side * (data.random[at] - x * plus)) / norm;
  }
  return { height, slope };
}

function topAt(question, lines, lam, k) {
  // Passages stand in the order of their ids, so a smaller number breaks a tie.
  const best = [];
  for (let i = 0; i < question.length; i++) {
    const score = Math.round((lines.height[i] - lam * lines.slope[i]) * STEPS);
    const rank = data.passage[question.start + i];
    let place = best.length;
    while (place > 0) {
      const other = best[place - 1];
      if (other.score > score || (other.score === score && other.rank < rank)) break;
      place--;
    }
    if (place < k) {
      best.splice(place, 0, { i, score, rank });
      if (best.length > k) best.pop();
    }
  }
  return best.map((one) => one.i);
}

function breakpoints(question, lines, k) {
  // The set changes only where a line from outside crosses one inside; each swap raises the slopes.
  const { height, slope } = lines;
  const inside = new Set(topAt(question, lines, 0, k));
  const found = [];
  let lam = 0;
  for (;;) {
    let first = Infinity;
    let leaves = -1;
    let enters = -1;
    for (const i of inside) {
      for (let j = 0; j < question.length; j++) {
        const catches = slope[i] - slope[j];
        if (inside.has(j) || catches <= 0) continue;
        const at = Math.max((height[i] - height[j]) / catches, lam);
        if (at < first) [first, leaves, enters] = [at, i, j];
      }
    }
    if (first >= LAM_MAX) return found;
    if (first > 0 && first !== found[found.length - 1]) found.push(first);
    lam = first;
    inside.delete(leaves);
    inside.add(enters);
  }
}

function offers(question, form, mimic) {
  const known = data.known(question);
  if (!known.plus) return false;
  if (form === "several mimics") return known.several;
  if (form === "question added" && !known.question) return false;
  return mimic === "own" ? known.own : known.own && known.random;
}

const kept = new Map();
function asked(set, form, mimic) {
  const key = [set.name, form, mimic].join("|");
  if (!kept.has(key)) {
    const own = set.questions.filter((q) => offers(q, form, mimic));
    kept.set(key, { own, lines: own.map((q) => linesOf(q, form, mimic)) });
  }
  return kept.get(key);
}

function sharesAt(set, form, mimic, lam) {
  // Mean share of each class among the k best, and of questions with a right one among them.
  const { own, lines } = asked(set, form, mimic);
  const shares = new Array(CLASSES.length).fill(0);
  let found = 0;
  own.forEach((question, q) => {
    let right = false;
    for (const i of topAt(question, lines[q], lam, K)) {
      const one = data.class[question.start + i];
      shares[one] += 1 / K / own.length;
      if (GOOD.has(one)) right = true;
    }
    if (right) found += 1 / own.length;
  });
  return { shares, found, n: own.length };
}

const curves = new Map();
function curveOf(set, form, mimic) {
  const key = [set.name, form, mimic].join("|");
  if (!curves.has(key)) {
    const points = [];
    for (let i = 0; i <= 40; i++) points.push({ lam: i / 20, ...sharesAt(set, form, mimic, i / 20) });
    curves.set(key, points);
  }
  return curves.get(key);
}

// The data: numbers as planes of bytes, texts as JSON, both gzipped (lib/explorer/page.py).

let data;

async function load() {
  const text = document.getElementById("data").textContent.trim();
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser is too old for the page: it needs DecompressionStream (2023 or later).");
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0);
  const texts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return unpack(texts, bytes.subarray(4 + length));
}

function unpack(texts, bytes) {
  const n = texts.rows;
  let at = 0;
  function whole(planes) {
    const values = new Int32Array(n);
    for (let plane = 0; plane < planes; plane++) {
      for (let i = 0; i < n; i++) values[i] |= bytes[at + i] << (8 * plane);
      at += n;
    }
    return values;
  }
  const found = { sets: texts.sets, passages: texts.passages, sources: texts.sources };
  for (const column of texts.columns) {
    const steps = whole(3);
    const values = new Float64Array(n);
    for (let i = 0; i < n; i++) values[i] = steps[i] === 0xffffff ? NaN : (steps[i] - 2e6) / 1e6;
    found[column] = values;
  }
  found.passage = whole(2);
  found.class = whole(1);
  // H+ is kept as the difference to the row before it.
  for (const set of found.sets) {
    for (const question of set.questions) {
      let sum = 0;
      for (let i = question.start; i < question.start + question.length; i++) {
        sum = Math.round(found.plus[i] * 1e6) + sum;
        found.plus[i] = sum / 1e6;
      }
    }
  }
  found.known = (question) => {
    const there = {};
    for (const column of texts.columns) there[column] = !Number.isNaN(found[column][question.start]);
    return there;
  };
  return found;
}

// The place: which question, form, mimic and lambda; it stands in the address, too.

const place = { set: "", q: "", form: "one mimic", mimic: "own", lam: 1 };
const by = (id) => document.getElementById(id);
const currentSet = () => data.sets.find((set) => set.name === place.set);
const currentQuestion = () => currentSet().questions.find((question) => question.qid === place.q);

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const set = data.sets.find((one) => one.name === said.get("set")) || data.sets.find((one) => one.name === "medqa") || data.sets[0];
  place.set = set.name;
  place.q = set.questions.some((one) => one.qid === said.get("q")) ? said.get("q") : set.median;
  place.form = Object.hasOwn(FORMS, said.get("form") ?? "") ? said.get("form") : "one mimic";
  place.mimic = Object.hasOwn(MIMICS, said.get("mimic") ?? "") ? said.get("mimic") : "own";
  const lam = parseFloat(said.get("lam"));
  place.lam = lam >= 0 && lam <= LAM_MAX ? lam : 1;
  keepToWhatThereIs();
}

// Browsers count how often a page changes its address, and screen readers read what changes: both
// are told when the reader pauses, not at every step of a drag.
let pause = 0;
function tellWhenStill() {
  clearTimeout(pause);
  pause = setTimeout(() => {
    const said = new URLSearchParams({ set: place.set, q: place.q, lam: String(+place.lam.toFixed(6)) });
    if (place.form !== "one mimic") said.set("form", place.form);
    if (place.mimic !== "own") said.set("mimic", place.mimic);
    try {
      history.replaceState(null, "", "#" + said);
    } catch (error) {
      console.warn(error); // the picture moves all the same
    }
    by("aloud").textContent = by("told").textContent;
  }, 250);
}

function keepToWhatThereIs() {
  const question = currentQuestion();
  if (!offers(question, place.form, "own")) place.form = "one mimic";
  if (!CHOICES[place.form].includes(place.mimic) || !offers(question, place.form, place.mimic)) place.mimic = "own";
}

// The picture.

const SVG = "http://www.w3.org/2000/svg";
function draw(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function fill(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => new Option(text, key, false, key === value)));
}

function showControls() {
  const set = currentSet();
  const question = currentQuestion();
  fill(by("set"), data.sets.map((one) => [one.name, `${one.title} (${one.questions.length})`]), place.set);
  fill(by("question"), set.questions.map((one) => [one.qid, `${one.qid}: ${one.text.slice(0, 90)}`]), place.q);
  const forms = Object.keys(FORMS).filter((form) => offers(question, form, "own"));
  fill(by("form"), forms.map((form) => [form, FORMS[form]]), place.form);
  const mimics = CHOICES[place.form].filter((mimic) => offers(question, place.form, mimic));
  fill(by("mimic"), mimics.map((mimic) => [mimic, MIMICS[mimic]]), place.mimic);
  by("median").disabled = place.q === set.median;
}

function showTexts() {
  const question = currentQuestion();
  by("text").textContent = question.text;
  by("options").replaceChildren(
    ...Object.entries(question.options).map(([letter, option]) => {
      const right = letter === question.answer;
      return element("li", right ? "answer" : "", `${letter}. ${option}${right ? " ✓ (the key)" : ""}`);
    }),
  );
  by("target").textContent = question.target;
  const heads = {
    own: "H−",
    random: "H− of another question",
    rotation: "H−: its angle is kept, its direction comes from another question's",
  };
  let text = place.mimic === "random" ? mimicOf(question.random_of) : question.mimic;
  if (place.form === "several mimics") text = question.several.map((one, i) => `${i + 1}. ${one}`).join(" ");
  by("mimictitle").textContent = place.form === "several mimics" ? "Several H−, as they begin" : heads[place.mimic];
  by("mimictext").textContent = text || "–";
  const set = currentSet();
  by("written").textContent = set.written;
  by("means").textContent = CLASSES.filter((one) => set.means[one]).map((one) => (one === set.means[one] ? one : `${one}: ${set.means[one]}`)).join(" · ");
}

function mimicOf(qid) {
  for (const set of data.sets) {
    const other = set.questions.find((one) => one.qid === qid);
    if (other) return other.mimic;
  }
  return "";
}

function item(question, i, rank, lam, lines, mark) {
  const one = data.class[question.start + i];
  const [title, begins, source, key] = data.passages[data.passage[question.start + i]];
  const made = element("li", mark === "leaves" ? "gone" : "");
  made.style.setProperty("--own", `var(${COLOURS[one]})`);
  made.dataset.passage = data.passage[question.start + i];
  const score = lines.height[i] - lam * lines.slope[i];
  made.append(element("span", "score", `S = ${score.toFixed(3)}`));
  made.append(element("span", "chip", CLASSES[one]));
  made.querySelector(".chip").title = currentSet().means[CLASSES[one]] || "";
  if (mark) made.append(element("span", "mark", mark));
  const { name, link } = data.sources[source];
  // A textbook's title is "chapter -- section -- ...": the section is what tells passages apart.
  const [chapter, ...sections] = title.split(" -- ");
  made.append(element("span", "title", `${rank}. ${sections.join(" › ") || title || begins}`));
  if (sections.length) made.append(element("span", "chapter", `in: ${chapter}`));
  const more = element("span", "begins", title ? `${begins} ` : "");
  const anchor = element("a", "", name);
  if (link && key) {
    anchor.href = link.replace("*", key);
    anchor.rel = "noopener";
    more.append(anchor);
  } else more.append(name);
  made.append(more);
  return made;
}

let shown = null; // lines and breakpoints of the question that is shown

function showQuestion() {
  const question = currentQuestion();
  const lines = linesOf(question, place.form, place.mimic);
  shown = { question, lines, before: topAt(question, lines, 0, K), changes: breakpoints(question, lines, K) };
  const ticks = by("ticks");
  ticks.setAttribute("viewBox", "0 0 1000 18");
  ticks.replaceChildren();
  for (const at of shown.changes) {
    draw(ticks, "line", { x1: at * 500, x2: at * 500, y1: 0, y2: 9, stroke: "var(--ink)", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" });
  }
  ticks.setAttribute("aria-label", `The top five changes at λ = ${shown.changes.map((x) => x.toFixed(3)).join(", ")}`);
  for (const [at, name] of marks()) {
    const line = draw(ticks, "line", { x1: at * 500, x2: at * 500, y1: 0, y2: 16, stroke: "var(--accent)", "stroke-width": 3, "vector-effect": "non-scaling-stroke" });
    draw(line, "title", {}, name);
  }
  showTexts();
  showLambda();
}

function marks() {
  const found = [[1, "λ = 1, the paper's"]];
  const dev = currentSet().dev;
  const plain = place.form === "one mimic" && place.mimic === "own";
  if (dev !== null && plain) found.push([dev, `λ = ${dev}, chosen on other questions`]);
  return found;
}

function showLambda() {
  const { question, lines, before, changes } = shown;
  const after = topAt(question, lines, place.lam, K);
  by("lam").value = place.lam;
  by("lamout").textContent = place.lam.toFixed(2);
  by("afterlam").textContent = `λ = ${place.lam.toFixed(2)}`;
  by("before").replaceChildren(...before.map((i, r) => item(question, i, r + 1, 0, lines, after.includes(i) ? "" : "leaves")));
  by("after").replaceChildren(...after.map((i, r) => item(question, i, r + 1, place.lam, lines, before.includes(i) ? "" : "new")));
  const count = (top) => top.filter((i) => GOOD.has(data.class[question.start + i])).length;
  const means = currentSet().means.right;
  const start = STARTS[place.form];
  by("start").textContent = start;
  by("told").textContent = `“right” (${means}): ${count(before)} of ${K} by ${start}, ${count(after)} of ${K} at λ = ${place.lam.toFixed(2)}`;
  const past = changes.filter((at) => at <= place.lam).length;
  const green = marks().map(([, name]) => name).join("; ");
  by("changes").textContent = `The set of five changes ${changes.length} times between λ = 0 and 2, ${past} of them up to here: the black ticks under the slider. Green: ${green}.`;
  // Not disabled, which would take the focus away: pressed without a change ahead, they do nothing.
  by("back").setAttribute("aria-disabled", nextChange(-1) === null);
  by("next").setAttribute("aria-disabled", nextChange(1) === null);
  showCurve();
  showPolar();
}

function showCurve() {
  const set = currentSet();
  const svg = by("curve");
  svg.replaceChildren();
  const phone = matchMedia("(max-width: 720px)").matches;
  const [left, top, width, height] = [40, 14, phone ? 310 : 505, 244];
  svg.setAttribute("viewBox", `0 0 ${left + width + 12} 300`);
  const x = (lam) => left + (lam / LAM_MAX) * width;
  const y = (share) => top + height * (1 - share);
  const points = curveOf(set, place.form, place.mimic);
  const here = sharesAt(set, place.form, place.mimic, place.lam);
  showUnjudged(set, here.shares[NOT_JUDGED]);
  const base = points.map(() => 0);
  const thin = [];
  const thick = [];
  CLASSES.forEach((name, c) => {
    if (!points.some((p) => p.shares[c] > 0)) return;
    const low = points.map((p, i) => `${x(p.lam)},${y(base[i])}`);
    const high = points.map((p, i) => `${x(p.lam)},${y(base[i] + p.shares[c])}`).reverse();
    const area = draw(svg, "polygon", { points: [...low, ...high].join(" "), fill: `var(${COLOURS[c]})`, stroke: "var(--paper)", "stroke-width": 0.8 });
    draw(area, "title", {}, `${name}: ${set.means[name]}`);
    // The name stands inside the band, where there is most room between its edges and the line; a
    // thin band's in a corner.
    let [room, atX, atY] = [0, 0, 0];
    points.slice(4, -4).forEach((p, i) => {
      for (const part of [0.5, 0.25, 0.75]) {
        const height = base[i + 4] + p.shares[c] * part;
        const free = Math.min(p.shares[c] * Math.min(part, 1 - part), Math.abs(height - p.found));
        if (free > room) [room, atX, atY] = [free, x(p.lam), y(height)];
      }
    });
    if (room > 0.045) thick.push([name, atX, atY]);
    else thin.push([name, COLOURS[c]]);
    points.forEach((p, i) => (base[i] += p.shares[c]));
  });
  thin.forEach(([name, colour], i) => {
    const at = top + height - 18 * i - 12;
    draw(svg, "rect", { x: left + width - 92, y: at - 10, width: 11, height: 11, fill: `var(${colour})`, stroke: "var(--paper)" });
    draw(svg, "text", { x: left + width - 76, y: at, class: "inside" }, `${name} (thin)`);
  });
  const hit = points.map((p, i) => `${i ? "L" : "M"}${x(p.lam)},${y(p.found)}`).join("");
  draw(svg, "path", { d: hit, fill: "none", stroke: "var(--paper)", "stroke-width": 5 });
  draw(svg, "path", { d: hit, fill: "none", stroke: "var(--ink)", "stroke-width": 2 });
  const last = set.judged_at[set.judged_at.length - 1];
  if (last !== undefined) {
    // Beyond what was judged the line falls also because nobody looked.
    const later = points.filter((p) => p.lam >= last).map((p, i) => `${i ? "L" : "M"}${x(p.lam)},${y(p.found)}`).join("");
    draw(svg, "path", { d: later, fill: "none", stroke: "var(--paper)", "stroke-width": 2.5, "stroke-dasharray": "4 5" });
  }
  for (const [name, atX, atY] of thick) {
    draw(svg, "text", { x: atX, y: atY + 4, "text-anchor": "middle", class: "inside" }, name);
  }
  draw(svg, "text", { x: left + 8, y: y(points[0].found) - 8, class: "inside" }, "questions with a right one");
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    draw(svg, "text", { x: left - 6, y: y(share) + 4, "text-anchor": "end", class: "soft" }, `${100 * share}%`);
  }
  for (const lam of [0, 0.5, 1, 1.5, 2]) {
    draw(svg, "text", { x: x(lam), y: top + height + 16, "text-anchor": "middle", class: "soft" }, lam);
  }
  draw(svg, "text", { x: left + width / 2, y: top + height + 34, "text-anchor": "middle", class: "soft" }, "λ");
  draw(svg, "line", { x1: x(place.lam), x2: x(place.lam), y1: top, y2: top + height, stroke: "var(--ink)", "stroke-dasharray": "3 3" });
  draw(svg, "circle", { id: "dot", cx: x(place.lam), cy: y(here.found), r: 6, fill: "var(--accent)", stroke: "var(--paper)", "stroke-width": 2 });
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  const start = points[0];
  const drawn = place.mimic === "own" ? "" : " One draw of another question; docs/results.md has means over several.";
  const caption = `${here.n} questions of ${set.title}. Line and dot: the share with at least one passage in the top five that is “right” (${set.means.right}): ${percent(start.found)} at λ = 0, ${percent(here.found)} at λ = ${place.lam.toFixed(2)}. Bands: what the five are, on average.${drawn}`;
  by("curvetext").textContent = caption;
  svg.setAttribute("aria-label", caption);
}

function showUnjudged(set, share) {
  // Where judging was by lambda, what nobody saw counts as not right: say so where it matters.
  const note = `Judged were the top fives at λ = ${set.judged_at.join(", ")}. Here nobody saw ${(100 * share).toFixed(1)} % of the five, on average over the set: they do not count as right.`;
  by("unseen").textContent = set.judged_at.length && share > 0.0005 ? note : "";
}

function showPolar() {
  const svg = by("polar");
  svg.replaceChildren();
  const question = currentQuestion();
  const text = by("polartext");
  if (place.form !== "one mimic") {
    text.textContent = "The turn of the query is drawn for one mimic alone: with the question added, or several mimics, it leaves this plane.";
    svg.setAttribute("aria-label", text.textContent);
    return;
  }
  const c = place.mimic === "random" ? question.c_random : question.c_own;
  const side = Math.sqrt(1 - c * c);
  const R = 80;
  const query = [-place.lam * side, 1 - place.lam * c];
  const turn = (Math.atan2(place.lam * side, 1 - place.lam * c) * 180) / Math.PI;
  const length = Math.hypot(...query);
  const scale = Math.min(1, 1.45 / Math.max(length, 1e-9));
  draw(svg, "circle", { cx: 0, cy: 0, r: R, fill: "none", stroke: "var(--line)" });
  function arrow(px, py, colour, name, dx, dy) {
    draw(svg, "line", { x1: 0, y1: 0, x2: px, y2: py, stroke: colour, "stroke-width": 3 });
    draw(svg, "circle", { cx: px, cy: py, r: 4, fill: colour });
    draw(svg, "text", { x: px + dx, y: py + dy, "text-anchor": "middle" }, name);
  }
  arrow(0, -R, "var(--right)", "h+", 0, -10);
  arrow(side * R, -c * R, "var(--wrong)", "mimic", 22, -6);
  const [qx, qy] = [query[0] * R * scale, -query[1] * R * scale];
  if (place.lam > 0) arrow(qx, qy, "var(--accent)", "query", -4, qy > 0 ? 18 : -10);
  text.textContent = `cos(h+, mimic) = ${c.toFixed(2)}. At λ = ${place.lam.toFixed(2)} the query h+ − λ · mimic has turned ${turn.toFixed(0)}° away from h+.`;
  svg.setAttribute("aria-label", text.textContent);
}

// What a reader does.

function moveTo(changes) {
  Object.assign(place, changes);
  keepToWhatThereIs();
  showControls();
  showQuestion();
  tellWhenStill();
}

let waiting = 0;
function setLambda(lam) {
  // Every change of the slider, the buttons and the keyboard comes here.
  place.lam = Math.min(Math.max(lam, 0), LAM_MAX);
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    showLambda();
    tellWhenStill();
  });
}

function nextChange(direction) {
  // Null where there is none. A little past the next change, so that rounding cannot tie what changes places there; never
  // past the change after it.
  const ends = direction > 0 ? shown.changes : [...shown.changes].reverse();
  const ahead = ends.filter((at) => direction * (at - place.lam) > 1e-6);
  if (!ahead.length) return null;
  const room = ahead.length > 1 ? Math.abs(ahead[1] - ahead[0]) / 2 : 1;
  return ahead[0] + direction * Math.min(0.002, room);
}

function listen() {
  by("set").addEventListener("change", (e) => {
    const set = data.sets.find((one) => one.name === e.target.value);
    moveTo({ set: set.name, q: set.median });
  });
  by("question").addEventListener("change", (e) => moveTo({ q: e.target.value }));
  by("median").addEventListener("click", () => moveTo({ q: currentSet().median }));
  by("form").addEventListener("change", (e) => moveTo({ form: e.target.value }));
  by("mimic").addEventListener("change", (e) => moveTo({ mimic: e.target.value }));
  by("lam").addEventListener("input", (e) => setLambda(parseFloat(e.target.value)));
  for (const [id, direction] of [["next", 1], ["back", -1]]) {
    by(id).addEventListener("click", () => {
      const lam = nextChange(direction);
      if (lam !== null) setLambda(lam);
    });
  }
  window.addEventListener("hashchange", () => {
    readAddress();
    showControls();
    showQuestion();
  });
}

async function begin() {
  try {
    data = await load();
    readAddress();
    showControls();
    showQuestion();
    listen();
    document.body.dataset.ready = "yes";
  } catch (error) {
    by("told").textContent = `The page could not start. ${error.message}`;
    throw error;
  }
}

begin();
