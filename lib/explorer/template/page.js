"use strict";

// The numbers: every passage of a question is a line, height - lambda * slope (lib/explorer/rows.py).

const LAM_MAX = 2;
const K = 5;
const STEPS = 1e5; // scores are compared in steps of 1e-5, as lib/search/index.py does
const CLASSES = ["right", "both", "wrong", "on topic", "neither", "not judged"];
const GOOD = new Set(["right", "both"].map((name) => CLASSES.indexOf(name)));
const NOT_JUDGED = CLASSES.indexOf("not judged");
const COLOURS = ["--right", "--both", "--wrong", "--topic", "--neither", "--unjudged"];
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

// From where on the lists of a set are known: one mimic alone is also added.
const least = (set, form) => (form === "one mimic" ? set.lam_min : 0);

function breakpoints(question, lines, k, from) {
  // The set changes only where a line from outside crosses one inside; each swap raises the slopes.
  const { height, slope } = lines;
  const inside = new Set(topAt(question, lines, from, k));
  const found = [];
  let lam = from;
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
    if (first > from && first !== found[found.length - 1]) found.push(first);
    lam = first;
    inside.delete(leaves);
    inside.add(enters);
  }
}

function offers(question, form, mimic) {
  const known = data.known(question);
  if (!known.plus) return false;
  if (form === "several mimics") return known.several && mimic === "own";
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
  // Mean share of each class among the k best, and of questions with a right one among them; that
  // share also if all were right that nobody judged, where judging was by lambda.
  const { own, lines } = asked(set, form, mimic);
  const shares = new Array(CLASSES.length).fill(0);
  let [found, could] = [0, 0];
  own.forEach((question, q) => {
    const top = topAt(question, lines[q], lam, K);
    for (const i of top) shares[data.class[question.start + i]] += 1 / K / own.length;
    const { right, unseen } = countOf(set, question, top);
    if (right) found += 1 / own.length;
    if (right || unseen) could += 1 / own.length;
  });
  return { shares, found, could, n: own.length };
}

function countOf(set, question, top) {
  // How many are right; and how many nobody has judged, where that is no judgment itself.
  const classes = top.map((i) => data.class[question.start + i]);
  return {
    right: classes.filter((one) => GOOD.has(one)).length,
    unseen: set.judged_at.length ? classes.filter((one) => one === NOT_JUDGED).length : 0,
  };
}

const curves = new Map();
function curveOf(set, form, mimic) {
  const key = [set.name, form, mimic].join("|");
  if (!curves.has(key)) {
    const points = [];
    for (let i = Math.round(20 * least(set, form)); i <= 20 * LAM_MAX; i++) {
      points.push({ lam: i / 20, ...sharesAt(set, form, mimic, i / 20) });
    }
    curves.set(key, points);
  }
  return curves.get(key);
}

// The data: numbers as planes of bytes, texts as JSON, both gzipped (lib/explorer/page.py).

let data;

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;/=>?@^_`{|}~";

function bytesOf(text) {
  // Base 85: four bytes in five letters, after their number.
  const values = new Uint8Array(128);
  for (let i = 0; i < LETTERS.length; i++) values[LETTERS.charCodeAt(i)] = i;
  const bytes = new DataView(new ArrayBuffer((text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let number = 0;
    for (let j = i; j < i + 5; j++) number = number * 85 + values[text.charCodeAt(j)];
    bytes.setUint32((i / 5) * 4, number);
  }
  return new Uint8Array(bytes.buffer, 4, bytes.getUint32(0));
}

async function load() {
  const text = document.getElementById("data").textContent.trim();
  const packed = bytesOf(text);
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
  const found = { ...texts };
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

// The place: which question, form, mimic and lambda, and which step; it is in the address, too.

const place = { set: "", q: "", form: "one mimic", mimic: "own", lam: 0, step: 1, guess: "" };
const by = (id) => document.getElementById(id);
const currentSet = () => data.sets.find((set) => set.name === place.set);
const currentQuestion = () => currentSet().questions.find((question) => question.qid === place.q);
const GUESSES = ["more", "as many", "fewer"];
let moved = false; // whether the reader has seen another lambda: then there is nothing to guess

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const set = data.sets.find((one) => one.name === said.get("set")) || data.sets.find((one) => one.name === "medqa") || data.sets[0];
  place.set = set.name;
  place.q = set.questions.some((one) => one.qid === said.get("q")) ? said.get("q") : set.median;
  place.form = Object.hasOwn(FORMS, said.get("form") ?? "") ? said.get("form") : "one mimic";
  place.mimic = Object.hasOwn(data.mimics, said.get("mimic") ?? "") ? said.get("mimic") : "own";
  const lam = parseFloat(said.get("lam"));
  place.lam = lam >= -1 && lam <= LAM_MAX ? lam : 0;
  place.guess = GUESSES.includes(said.get("guess")) ? said.get("guess") : "";
  const step = parseInt(said.get("step"), 10);
  place.step = step >= 1 && step <= ESSAY.length ? step : place.lam ? 2 : 1;
  keepToWhatThereIs();
}

function address() {
  const said = new URLSearchParams({ set: place.set, q: place.q, lam: String(+place.lam.toFixed(6)), step: place.step });
  if (place.form !== "one mimic") said.set("form", place.form);
  if (place.mimic !== "own") said.set("mimic", place.mimic);
  if (place.guess) said.set("guess", place.guess);
  return "#" + said;
}

// Browsers count how often a page changes its address, and screen readers read what changes: both
// are told when the reader pauses, not at every step of a drag.
let pause = 0;
function tellWhenStill() {
  clearTimeout(pause);
  pause = setTimeout(() => {
    keepAddress();
    by("aloud").textContent = `${by("told").textContent}. ${by("says").textContent}`;
  }, 250);
}

function keepAddress() {
  try {
    history.replaceState(null, "", address());
  } catch (error) {
    console.warn(error); // the picture moves all the same
  }
}

async function copyLink() {
  keepAddress();
  const link = location.href.split("#")[0] + address();
  let done = "copied";
  try {
    await navigator.clipboard.writeText(link);
  } catch {
    done = "see address"; // some browsers let no page without https near the clipboard
  }
  by("copy").textContent = done;
  by("aloud").textContent = done === "copied" ? "Link copied" : "The link is in the address bar";
  setTimeout(() => (by("copy").textContent = "copy link"), 2000);
}

function keepToWhatThereIs() {
  const question = currentQuestion();
  if (!offers(question, place.form, "own")) place.form = "one mimic";
  if (!offers(question, place.form, place.mimic)) place.mimic = "own";
  place.lam = within(place.lam);
}

const within = (lam) => Math.min(Math.max(lam, least(currentSet(), place.form)), LAM_MAX);

// The essay: four steps, whose texts are those of lib/explorer/steps.json. What stands in braces is
// counted from the data, at the place where the reader is.

const percent = (share) => `${(100 * share).toFixed(0)} %`;
const near = (lam) => Math.abs(place.lam - lam) < 0.005;
const isOwn = () => place.mimic === "own" && place.form === "one mimic";

function ofFive({ right, unseen }) {
  return `${right} of ${K}${unseen ? ` (${unseen} not judged)` : ""}`;
}

function atLeast({ shares, found, could }) {
  const most = shares[NOT_JUDGED] > 0.5 ? "most" : "some";
  return percent(found) === percent(could) ? percent(found) : `at least ${percent(found)} (${most} passages not judged)`;
}

function rightsAt(lam, mimic = "own") {
  const question = currentQuestion();
  return countOf(currentSet(), question, topAt(question, linesOf(question, "one mimic", mimic), lam, K));
}

function verdict() {
  const [before, after] = [rightsAt(0).right, rightsAt(1).right];
  return after > before ? "more" : after < before ? "fewer" : "as many";
}

function likewise() {
  // Whether adding and subtracting do to this question what they do to the set.
  const [added, subtracted] = [-1, 1].map((lam) => rightsAt(lam).right);
  const [all, less] = [-1, 1].map((lam) => sharesAt(currentSet(), "one mimic", "own", lam).found);
  return added === subtracted ? "both keep as many" : added > subtracted === all > less ? "it is the same" : "it is the other way round";
}

function filled(text) {
  const values = {
    n: () => currentSet().questions.length,
    likewise,
    means: () => currentSet().means.right,
    verdict: () => verdict()[0].toUpperCase() + verdict().slice(1),
    guess: () => (place.step === 1 ? place.guess : !place.guess ? "" : place.guess === verdict() ? ", as you guessed" : `; you guessed ${place.guess}`),
    right: (mimic, lam) => ofFive(rightsAt(lam, mimic)),
    share: (mimic, lam) => atLeast(sharesAt(currentSet(), "one mimic", mimic, lam)),
  };
  return text.replace(/\{([^}]+)\}/g, (_, said) => {
    const [what, mimic, lam] = said.split(" ");
    return values[what](mimic, lam === "here" ? place.lam : +lam);
  });
}

// Of each step its key, which of its texts is said, and what its buttons do.
const ESSAY = [
  {
    key: "predict",
    says: () => (guessing() ? "ask" : place.guess ? "guessed" : "late"),
    does: () => (guessing() ? GUESSES.map((one) => [one, { guess: one }]) : place.guess ? next() : [["guess", again], ...next()]),
  },
  {
    key: "drag",
    says: () => (near(1) && isOwn() ? "told" : "ask"),
    does: () => (near(1) && isOwn() ? next() : [["take me to λ = 1", { lam: 1, ...OWN }], ...next()]),
  },
  {
    key: "swap",
    says: () => ({ random: "told", rotation: "turned" })[place.mimic] ?? "ask",
    does: () =>
      place.mimic !== "own"
        ? [...(place.mimic === "random" ? [["the same turn", { form: "one mimic", mimic: "rotation" }]] : []), ["back to its own", OWN], ...next()]
        : offers(currentQuestion(), "one mimic", "random")
          ? [["swap the mimic", { form: "one mimic", mimic: "random", lam: place.lam || 1 }], ...next()]
          : next(),
  },
  {
    key: "ends",
    says: () => (onWorm() ? "worm" : isOwn() && near(-1) ? "added" : isOwn() && near(2) ? "twice" : "ask"),
    does: () => [["λ = −1", { lam: -1, ...OWN }], ["λ = 2", { lam: 2, ...OWN }], ["a worm in an eye", { ...WORM, ...OWN }]],
  },
];
const OWN = { form: "one mimic", mimic: "own" };
const WORM = { set: "medqa", q: "0890", lam: 1.98 };

const next = () => [[`step ${place.step + 1} →`, { step: place.step + 1 }]];

function again() {
  moved = false;
  moveTo({ lam: 0, guess: "", ...OWN });
}

// Until the reader has moved λ, what comes of it is not told.
const untold = () => place.step <= 2 && !moved && place.lam === 0;
const guessing = () => untold() && place.step === 1 && !place.guess;

const onWorm = () => place.q === WORM.q && near(WORM.lam) && isOwn();

function showStep() {
  const step = ESSAY[place.step - 1];
  by("lead").style.visibility = untold() ? "hidden" : "visible"; // its line is kept: nothing jumps
  by("steps").replaceChildren(
    ...ESSAY.map(({ key }, i) => {
      const { name } = data.steps[key];
      const button = element("button", "", `${i + 1} `);
      button.type = "button";
      button.title = name;
      button.append(element("span", "", name));
      if (i + 1 === place.step) button.setAttribute("aria-current", "step");
      return button;
    }),
  );
  by("says").textContent = filled(data.steps[step.key][step.says()]);
  const names = step.does().map(([name]) => name);
  // While the slider moves nothing is made anew that has the focus.
  if (names.join() === [...by("do").children].map((one) => one.textContent).join()) return;
  const had = by("do").contains(document.activeElement);
  by("do").replaceChildren(
    ...names.map((name, i) => {
      const button = element("button", "", name);
      button.type = "button";
      button.addEventListener("click", () => {
        const [, change] = step.does()[i];
        if (typeof change === "function") change();
        else go(change);
      });
      return button;
    }),
  );
  if (had) by("do").firstElementChild?.focus();
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
  const mimics = Object.keys(data.mimics).filter((mimic) => offers(question, place.form, mimic));
  fill(by("mimic"), mimics.map((mimic) => [mimic, data.mimics[mimic]]), place.mimic);
  by("median").disabled = place.q === set.median;
}

function showTexts() {
  const set = currentSet();
  const question = currentQuestion();
  // What is asked comes first: it is the last sentence.
  const [, story, asks] = question.text.match(/^([\s\S]*[.?!] )?([\s\S]*)$/);
  by("text").replaceChildren(element("b", "", asks), " ", story || "");
  by("options").replaceChildren(
    ...Object.entries(question.options).map(([letter, option]) => {
      const right = letter === question.answer;
      const row = element("li", right ? "answer" : "", `${letter}. ${option}${right ? " ✓" : ""}`);
      if (right) row.append(element("span", "roomy", " (the key)"));
      return row;
    }),
  );
  by("key").replaceChildren(
    ...CLASSES.filter((one) => set.means[one]).map((one) => {
      const row = element("li");
      row.style.setProperty("--own", `var(${COLOURS[CLASSES.indexOf(one)]})`);
      const name = element("span", "", one);
      if (set.means[one] !== one) name.append(element("small", "", `: ${set.means[one]}`));
      row.append(element("i"), name);
      return row;
    }),
  );
  by("target").textContent = question.target;
  let text = place.mimic === "random" ? mimicOf(question.random_of) : question.mimic;
  if (place.form === "several mimics") text = question.several.map((one, i) => `${i + 1}. ${one}`).join(" ");
  by("mimictitle").textContent = place.form === "several mimics" ? "Several H−, as they begin" : data.heads[place.mimic];
  by("mimictext").textContent = text || "–";
  by("written").textContent = set.written;
}

const mimicOf = (qid) => data.sets.flatMap((set) => set.questions).find((one) => one.qid === qid)?.mimic;

// A passage.

function card(question, i) {
  const one = data.class[question.start + i];
  const passage = data.passages[data.passage[question.start + i]];
  const made = element("li");
  made.style.setProperty("--own", `var(${COLOURS[one]})`);
  made.dataset.passage = data.passage[question.start + i];
  const summary = element("summary");
  summary.append(element("span", "chip", CLASSES[one]), element("span", "mark"), element("span", "title"));
  if (!(passage[0] && passage[1])) summary.classList.add("alone");
  else summary.append(element("span", "begins", passage[1]));
  const open = element("details");
  open.append(summary);
  open.addEventListener("toggle", () => {
    if (open.open && !open.querySelector(".why")) open.append(whyOf(question, i, one, passage));
    if (shown) tellSums();
  });
  made.append(open);
  return made;
}

function nameOf([title, begins]) {
  // A textbook's title is "chapter -- section -- ...": the section is what tells passages apart.
  const [, ...sections] = title.split(" -- ");
  return sections.join(" › ") || title || begins;
}

function update(made, i, rank, lam, lines, mark) {
  const question = shown.question;
  const passage = data.passages[data.passage[question.start + i]];
  made.className = mark === "leaves" ? "gone" : "";
  if (onWorm() && passage[1].includes("thelaziasis")) made.className = "found";
  made.querySelector(".mark").textContent = mark;
  made.querySelector(".title").textContent = `${rank}. ${nameOf(passage)}`;
  made.sum = [lines.height[i], lines.slope[i], lam];
}

function tellSums() {
  for (const sum of document.querySelectorAll(".sum")) {
    const [height, slope, lam] = sum.closest("li").sum;
    const sign = lam < 0 ? "+" : "−";
    const first = place.form === "question added" ? "cos(d, H+) + cos(d, question)" : "cos(d, H+)";
    sum.textContent = `S = ${first} ${sign} ${Math.abs(lam).toFixed(2)} · cos(d, mimic) = ${height.toFixed(3)} ${sign} ${Math.abs(lam).toFixed(2)} · ${slope.toFixed(3)} = ${(height - lam * slope).toFixed(3)}`;
  }
}

function whyOf(question, i, one, [title, begins, source, key]) {
  const made = element("div", "why");
  const set = currentSet();
  const said = question.said.filter(([at]) => at === i);
  const spans = said.filter(([, , start]) => start >= 0).map(([, , start, end]) => [start, end]);
  if (said.length) {
    const named = said.map(([, letter]) => `${letter}. ${question.options[letter]}${letter === question.answer ? " (the key)" : ""}`);
    made.append(element("p", "", `It supports ${named.join(" and ")}: two readings agreed.`));
    const options = said.map(([, letter]) => question.options[letter]);
    const text = element("p");
    const some = spans.length ? pieces(begins, spans, "mark") : pieces(begins, wordsOf(options, begins), "u");
    if (begins) text.append(...some);
    made.append(text);
    const words = !begins
      ? "Of this source only the title may be shown."
      : spans.length
        ? "Lit: the words that the first reading copied."
        : `The words that it copied come later than this beginning.${text.querySelector("u") ? " Underlined: words of the option." : ""}`;
    made.append(element("p", "soft", words));
  } else {
    const means = set.means[CLASSES[one]] || CLASSES[one];
    const unseen = one === NOT_JUDGED && set.judged_at.length;
    made.append(element("p", "", unseen ? "Nobody has judged this passage for this question, so it does not count as right." : `${means[0].toUpperCase()}${means.slice(1)}.`));
    if (title && begins) made.append(element("p", "", begins));
  }
  if (title) made.append(element("p", "soft", title.split(" -- ").join(" › ")));
  const from = element("p", "", "From: ");
  const { name, link } = data.sources[source];
  const anchor = element("a", "", name);
  if (link && key) {
    anchor.href = link.replace("*", key);
    anchor.rel = "noopener";
    from.append(anchor);
  } else from.append(name);
  made.append(from, element("p", "soft sum"));
  return made;
}

function wordsOf(options, text) {
  // Where words of the options are in a text: long ones, as whole words, whatever their case.
  const words = new Set(options.flatMap((one) => one.toLowerCase().match(/\p{L}{5,}/gu) || []));
  return [...text.matchAll(/\p{L}+/gu)].filter(([word]) => words.has(word.toLowerCase())).map((found) => [found.index, found.index + found[0].length]);
}

function pieces(text, spans, tag) {
  const made = [];
  let at = 0;
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    if (start < at) continue; // two options by the same words
    made.push(text.slice(at, start), element(tag, tag === "u" ? "named" : "", text.slice(start, end)));
    at = end;
  }
  return [...made, text.slice(at)];
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

function arrange(list, order, cardOf, animated) {
  // The cards of a list in a new order: those that stay move there, new ones come in.
  const known = new Map([...list.children].map((one) => [one.dataset.passage, one]));
  const cards = order.map((i, r) => {
    const made = known.get(String(data.passage[shown.question.start + i])) || card(shown.question, i);
    cardOf(made, i, r);
    return made;
  });
  const same = cards.length === list.children.length && cards.every((one, r) => one === list.children[r]);
  if (same) return;
  const moves = animated && !still.matches && known.size;
  const before = moves ? new Map(cards.map((one) => [one, known.get(one.dataset.passage) ? one.getBoundingClientRect().top : null])) : null;
  if (moves) cards.forEach((one) => one.getAnimations().forEach((running) => running.cancel()));
  const focused = cards.find((one) => one.contains(document.activeElement)) ? document.activeElement : null;
  list.replaceChildren(...cards);
  focused?.focus({ preventScroll: true });
  if (!moves) return;
  for (const one of cards) {
    const was = before.get(one);
    const way = was === null ? 0 : was - one.getBoundingClientRect().top;
    const from = was === null ? { opacity: 0, transform: "translateX(24px)" } : { transform: `translateY(${way}px)` };
    if (was === null || way) one.animate([from, { opacity: 1, transform: "none" }], { duration: 380, easing: "ease-out" });
  }
}

let shown = null; // lines and breakpoints of the question that is shown

function showQuestion() {
  const question = currentQuestion();
  const lines = linesOf(question, place.form, place.mimic);
  if (shown?.question !== question) for (const id of ["before", "after"]) by(id).replaceChildren();
  shown = { question, lines, before: topAt(question, lines, 0, K), changes: breakpoints(question, lines, K, least(currentSet(), place.form)) };
  by("lam").min = least(currentSet(), place.form);
  showTexts();
  showLambda();
}

function marks() {
  const found = [[1, "λ = 1, the paper's"]];
  const dev = currentSet().dev;
  if (dev !== null && isOwn()) found.push([dev, `λ = ${dev}${dev ? "" : ", no contrast"}, the best on other questions`]);
  return found;
}

const signed = (lam) => lam.toFixed(2).replace("-", "−");

function showLambda() {
  const { question, lines, before } = shown;
  if (place.lam !== 0) moved = true;
  const after = topAt(question, lines, place.lam, K);
  by("lam").value = place.lam;
  by("lam").setAttribute("aria-valuetext", `λ = ${signed(place.lam)}`);
  by("lamout").textContent = signed(place.lam);
  by("afterlam").textContent = `λ = ${signed(place.lam)}`;
  by("contrast").textContent = place.lam < 0 ? "Mimic added" : "With contrast";
  arrange(by("before"), before, (made, i, r) => update(made, i, r + 1, 0, lines, after.includes(i) ? "" : "leaves"), false);
  arrange(by("after"), after, (made, i, r) => update(made, i, r + 1, place.lam, lines, before.includes(i) ? "" : "new"), true);
  tellSums();
  const count = (top) => ofFive(countOf(currentSet(), question, top));
  const start = data.starts[place.form];
  by("start").textContent = start;
  by("told").textContent = `right: ${count(before)} by ${start}, ${count(after)} now`;
  by("changes").textContent = `Ticks under the slider: a passage enters the five. Orange: ${marks().map(([, name]) => name).join("; ")}.`;
  // Not disabled, which would take the focus away: pressed without a change ahead, they do nothing.
  by("back").setAttribute("aria-disabled", nextChange(-1) === null);
  by("next").setAttribute("aria-disabled", nextChange(1) === null);
  showStep();
  showCurves();
  showPolar();
}

// The slider and both charts have one axis: half a thumb inside the box at either end.

const THUMB = 20;
function axisOf(svg, height) {
  const width = svg.getBoundingClientRect().width || 600;
  const from = least(currentSet(), place.form);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  return { width, x: (lam) => THUMB / 2 + ((lam - from) / (LAM_MAX - from)) * (width - THUMB), ticks: [-1, -0.5, 0, 0.5, 1, 1.5, 2].filter((lam) => lam >= from) };
}

const isPhone = () => matchMedia("(max-width: 820px)").matches;

function showTicks() {
  const svg = by("ticks");
  const { x, ticks } = axisOf(svg, 24);
  for (const at of shown.changes) draw(svg, "line", { x1: x(at), x2: x(at), y1: 0, y2: 7, stroke: "var(--ink)", "stroke-width": 1.5 });
  for (const [at, name] of marks()) {
    const line = draw(svg, "line", { x1: x(at), x2: x(at), y1: 0, y2: 10, stroke: "var(--accent)", "stroke-width": 3 });
    draw(line, "title", {}, name);
  }
  nameTicks(svg, x, ticks, 22);
  svg.setAttribute("aria-label", `The top five changes at λ = ${shown.changes.map((at) => at.toFixed(3)).join(", ")}`);
}

function nameTicks(svg, x, ticks, y) {
  for (const lam of ticks) draw(svg, "text", { x: x(lam), y, "text-anchor": "middle", class: "soft" }, String(lam).replace("-", "−"));
}

function showCurves() {
  const set = currentSet();
  const here = sharesAt(set, place.form, place.mimic, place.lam);
  const points = curveOf(set, place.form, place.mimic);
  showTicks();
  showLine(set, points, here);
  showBands(set, points);
  // Where judging was by lambda, what nobody saw counts as not right: say so where it matters.
  const unseen = here.shares[NOT_JUDGED];
  const note = `Judged were the top fives at λ = ${set.judged_at.join(", ").replaceAll("-", "−")}. Here nobody saw ${(100 * unseen).toFixed(1)} % of the five: the line over λ counts them as not right, the grey area above it as right.`;
  by("unseen").textContent = set.judged_at.length && unseen > 0.0005 ? note : "";
}

// Where most questions hang on what nobody judged there is no line, only the band.
const isSeen = ({ found, could }) => could - found <= 0.5;

function pathOf(points, x, y) {
  return points.map((p, i) => (isSeen(p) ? `${i && isSeen(points[i - 1]) ? "L" : "M"}${x(p.lam)},${y(p.found)}` : "")).join("");
}

function grid(svg, axis, top, height, shares) {
  for (const share of shares) {
    const y = top + height * (1 - share);
    draw(svg, "line", { x1: axis.x(axis.ticks[0]), x2: axis.x(LAM_MAX), y1: y, y2: y, stroke: "var(--line)" });
    draw(svg, "text", { x: 0, y: y + 4, "text-anchor": "end", class: "soft" }, `${100 * share} %`);
  }
  for (const lam of axis.ticks) draw(svg, "line", { x1: axis.x(lam), x2: axis.x(lam), y1: top, y2: top + height, stroke: "var(--line)" });
}

function showLine(set, points, here) {
  const svg = by("curve");
  const [top, height] = [6, isPhone() ? 34 : 62];
  const axis = axisOf(svg, top + height + 6);
  const y = (share) => top + height * (1 - share);
  grid(svg, axis, top, height, [0, 0.5, 1]);
  const start = sharesAt(set, place.form, place.mimic, 0);
  const caption = `${here.n} questions of ${set.title.split(",")[0]}; a right passage among the five: ${atLeast(start)} at λ = 0, ${atLeast(here)} at λ = ${signed(place.lam)}`;
  svg.setAttribute("aria-label", untold() ? "Empty until λ moves: the result over all questions" : caption);
  if (untold()) {
    by("over").textContent = `Here, once λ moves: the result over all ${here.n} questions of ${set.title.split(",")[0]}.`;
    return;
  }
  const other = place.mimic !== "own";
  if (other) draw(svg, "path", { d: pathOf(curveOf(set, place.form, "own"), axis.x, y), fill: "none", stroke: "var(--edge)", "stroke-width": 1.5 });
  // Where nobody judged, the line could be as high as the band is.
  const high = points.map((p) => `${axis.x(p.lam)},${y(p.could)}`).reverse();
  const low = points.map((p) => `${axis.x(p.lam)},${y(p.found)}`);
  draw(svg, "polygon", { points: [...low, ...high].join(" "), fill: "var(--unjudged)" });
  draw(svg, "path", { d: pathOf(points, axis.x, y), fill: "none", stroke: "var(--ink)", "stroke-width": 2 });
  draw(svg, "line", { x1: axis.x(place.lam), x2: axis.x(place.lam), y1: top, y2: top + height + 6, stroke: "var(--accent)", "stroke-dasharray": "3 3" });
  const gap = ({ found, could }) => could - found;
  const most = Math.max(...points.map(gap));
  if (most) {
    // Its name is in the middle of where the band is high.
    const high = points.filter((p) => gap(p) > 0.8 * most);
    const { lam, found, could } = high[high.length >> 1];
    draw(svg, "text", { x: axis.x(lam), y: y((found + could) / 2) + 4, "text-anchor": "middle", class: "inside" }, "not judged");
  }
  if (isSeen(here)) draw(svg, "circle", { id: "dot", cx: axis.x(place.lam), cy: y(here.found), r: 5, fill: "var(--accent)", stroke: "var(--paper)", "stroke-width": 2 });
  by("over").textContent = `${caption}.${other ? " Grey line: own mimic." : ""}`;
}

function showBands(set, points) {
  const svg = by("bands");
  const [top, height] = [6, 170];
  const axis = axisOf(svg, top + height + 20);
  const y = (share) => top + height * (1 - share);
  const base = points.map(() => 0);
  const names = [];
  grid(svg, axis, top, height, [0, 0.5, 1]);
  CLASSES.forEach((name, c) => {
    if (!points.some((p) => p.shares[c] > 0)) return;
    const low = points.map((p, i) => `${axis.x(p.lam)},${y(base[i])}`);
    const high = points.map((p, i) => `${axis.x(p.lam)},${y(base[i] + p.shares[c])}`).reverse();
    const area = draw(svg, "polygon", { points: [...low, ...high].join(" "), fill: `var(${COLOURS[c]})`, stroke: "var(--paper)", "stroke-width": 0.8 });
    draw(area, "title", {}, `${name}: ${set.means[name]}`);
    // The name is where its band is thickest; a thin band's is in the list of colours alone.
    const inner = points.map((p, i) => [p.shares[c], i]).slice(6, -6);
    const [thick, i] = inner.reduce((a, b) => (b[0] > a[0] ? b : a));
    if (thick * height > 16) names.push([name, axis.x(points[i].lam), y(base[i] + thick / 2) + 4]);
    points.forEach((p, j) => (base[j] += p.shares[c]));
  });
  for (const [name, atX, atY] of names) draw(svg, "text", { x: atX, y: atY, "text-anchor": "middle", class: "inside" }, name);
  draw(svg, "line", { x1: axis.x(place.lam), x2: axis.x(place.lam), y1: top, y2: top + height, stroke: "var(--ink)", "stroke-dasharray": "3 3" });
  nameTicks(svg, axis.x, axis.ticks, top + height + 15);
  const drawn = place.mimic === "own" ? "" : " One draw of another question; docs/results.md has means over several.";
  const caption = `Average over ${curveOf(set, place.form, place.mimic)[0].n} questions of ${set.title}, over λ. The colours are those of the passages.${drawn}`;
  by("curvetext").textContent = caption;
  svg.setAttribute("aria-label", caption);
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
  const turn = Math.abs((Math.atan2(place.lam * side, 1 - place.lam * c) * 180) / Math.PI);
  const length = Math.hypot(...query);
  const scale = Math.min(1, 1.45 / Math.max(length, 1e-9));
  draw(svg, "circle", { cx: 0, cy: 0, r: R, fill: "none", stroke: "var(--line)" });
  function arrow(px, py, colour, name, dx, dy) {
    draw(svg, "line", { x1: 0, y1: 0, x2: px, y2: py, stroke: colour, "stroke-width": 3 });
    draw(svg, "circle", { cx: px, cy: py, r: 4, fill: colour });
    draw(svg, "text", { x: px + dx, y: py + dy, "text-anchor": "middle" }, name);
  }
  arrow(0, -R, "var(--ink)", "h+", 0, -10);
  arrow(side * R, -c * R, "var(--wrong)", "mimic", 22, -6);
  const [qx, qy] = [query[0] * R * scale, -query[1] * R * scale];
  // Near h+ the name of the query goes to the other side of its arrow.
  if (place.lam !== 0) arrow(qx, qy, "var(--accent)", "query", qx < 0 ? -22 : 26, qy > 0 ? 18 : 4);
  text.textContent = `cos(h+, mimic) = ${c.toFixed(2)}. At λ = ${signed(place.lam)} the query h+ − λ · mimic has turned ${turn.toFixed(0)}° ${place.lam < 0 ? "towards the mimic" : "away from h+"}.`;
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
  place.lam = within(lam);
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    showLambda();
    tellWhenStill();
  });
}

function go(changes) {
  // What a button of the essay does: lambda travels there, so that the cards are seen to move.
  const { lam, ...others } = changes;
  cancelAnimationFrame(waiting);
  if (Object.keys(others).some((key) => place[key] !== others[key])) moveTo(others);
  if (lam === undefined || lam === place.lam) return;
  const [from, start, takes] = [place.lam, performance.now(), still.matches ? 0 : 1200];
  function travel(now) {
    const part = takes ? Math.min((now - start) / takes, 1) : 1;
    place.lam = within(part < 1 ? from + (lam - from) * Math.max(part, 0) : lam);
    showLambda();
    if (part < 1) waiting = requestAnimationFrame(travel);
    else tellWhenStill();
  }
  waiting = requestAnimationFrame(travel);
}

function nextChange(direction) {
  // Null where there is none. A little past the next change, so that rounding cannot tie what
  // changes places there; never past the change after it.
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
  by("copy").addEventListener("click", copyLink);
  by("steps").addEventListener("click", (e) => {
    const at = [...by("steps").children].indexOf(e.target.closest("button"));
    if (at < 0) return;
    moveTo({ step: at + 1 });
    by("steps").children[at].focus();
  });
  for (const [id, direction] of [["next", 1], ["back", -1]]) {
    by(id).addEventListener("click", () => {
      const lam = nextChange(direction);
      if (lam !== null) setLambda(lam);
    });
  }
  window.addEventListener("hashchange", () => {
    cancelAnimationFrame(waiting);
    readAddress();
    moveTo({});
  });
  const watcher = new ResizeObserver(() => {
    document.documentElement.style.setProperty("--asked", `${by("asked").offsetHeight}px`);
    showCurves();
  });
  for (const one of [by("asked"), document.querySelector(".play")]) watcher.observe(one);
}

async function begin() {
  try {
    data = await load();
    by("controls").open = !isPhone();
    // A copy in another folder has none of the files that these links lead to.
    by("beside").hidden = !location.pathname.endsWith("/docs/explorer.html");
    by("alone").hidden = !by("beside").hidden;
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
