// The page: choose rows, weigh metrics, rank, sort, draw.
(() => {
  const { compare, mark, option } = classwise;
  const { known } = ranking;
  const { boards, colours, grey } = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const form = $("controls"), fields = form.elements;
  const FILTERS = ["dataset", "threat", "architecture", "method"];
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const format = (value, time = false) => {
    if (value === null || value === undefined) return "–";
    if (time) return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
    return Math.abs(value) < 9.9995 ? value.toFixed(3) : value.toPrecision(4);
  };
  let board = boards[0], weights = [], order = { column: -1, direction: 1 }, shown = [];

  const asGiven = () => { weights = board.metrics.map((metric) => metric.weight); };
  const lower = (column) => board.columns[column].lower;
  const metrics = () => board.metrics.map((metric, place) => ({ ...metric, weight: weights[place], lower: lower(metric.column) }));

  // Filters: data set and threat model choose the boards, all four choose the rows of one.
  const fits = (row, names) => names.every((name) => !fields[name].value || row[name] === fields[name].value);
  const fill = (select, values, all) => {
    const before = select.value;
    select.replaceChildren(option("", all), ...values.map((value) => option(value, value || "(none)")));
    select.value = values.includes(before) ? before : "";
    select.closest("label").hidden = values.length < 2;
  };
  const distinct = (rows, name) => [...new Set(rows.map((row) => row[name]))].filter((value) => value).sort((a, b) => compare(a, b, 1));
  const fillBoards = () => {
    const matching = boards.map((_, place) => place).filter((place) => boards[place].rows.some((row) => fits(row, ["dataset", "threat"])));
    fields.board.replaceChildren(...matching.map((place) => option(String(place), boards[place].title)));
    const now = boards.indexOf(board);
    choose(matching.includes(now) || !matching.length ? now : matching[0]);
    $("boards").hidden = boards.length < 2;
  };
  const choose = (place) => {
    const changed = boards[place] !== board || !weights.length;
    board = boards[place];
    fields.board.value = String(place);
    for (const name of ["architecture", "method"]) fill(fields[name], distinct(board.rows, name), "all");
    $("published").hidden = !board.rows.some((row) => row.source);
    if (changed) { asGiven(); order = { column: -1, direction: 1 }; fillWeights(); fillAxes(); fillNotes(); }
  };
  const fillNotes = () => {
    $("notes").replaceChildren(...board.notes.map((note) => element("li", { textContent: note, dir: "auto" })));
    $("lens").textContent = board.lens || "none";
    $("criteria").textContent = board.criteria.map((column) => board.columns[column].key).join(", ") || "nothing";
  };

  // Weights: a slider and a number for each metric.
  const fillWeights = () => {
    $("weights").replaceChildren(...board.metrics.map((metric, place) => {
      const id = `weight-${place}`, key = board.columns[metric.column].key;
      const range = element("input", { type: "range", min: "0", max: "5", step: "0.1", id, value: String(weights[place]) });
      const number = element("input", { type: "number", min: "0", step: "0.1", value: String(weights[place]) });
      number.setAttribute("aria-label", `weight of ${metric.name} as a number`);
      const share = element("span", { className: "note" });
      const label = element("label", { htmlFor: id }, element("b", { textContent: metric.name }), ", ", share,
        element("span", { className: "note about", textContent: metric.title === key ? key : `${metric.title}: ${key}` }));
      const line = element("div", { className: "weight" }, label, range, number);
      const move = (value, other) => {
        weights[place] = Number.isFinite(value) && value > 0 ? value : 0;
        other.value = String(weights[place]);
        refresh();
      };
      range.addEventListener("input", () => move(Number(range.value), number));
      number.addEventListener("input", () => move(Number(number.value), range));
      return line;
    }));
  };
  const showWeights = () => {
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    $("weighed").textContent = metrics().filter(({ weight }) => weight > 0).map(({ name, weight }) => `${name} ${weight}`).join(", ") || "nothing counts";
    [...$("weights").children].forEach((line, place) => {
      line.classList.toggle("out", weights[place] === 0);
      line.querySelector(".note").textContent = weights[place] ? `${(100 * weights[place] / total).toFixed(0)} % of the score` : "does not count";
      const [range, number] = line.querySelectorAll("input");
      for (const input of [range, number]) if (input !== document.activeElement) input.value = String(weights[place]);
    });
  };

  // Rows with their standing under the weights as they are.
  const rank = () => {
    const text = fields.text.value.trim().toLowerCase();
    const rows = board.rows.filter((row) => fits(row, FILTERS) && (fields.published.checked || !row.source)
      && (!text || row.name.toLowerCase().includes(text)));
    const { scores, even, compared } = ranking.composite(rows, metrics());
    const places = ranking.places(scores), near = ranking.withLeader(scores, places);
    const front = ranking.front(rows, board.criteria.map((column) => ({ column, lower: lower(column) })));
    shown = rows.map((row, index) => ({ row, score: scores[index], place: places[index], near: near[index], front: front[index] }));
    return { even, compared };
  };

  // The table: standing, metrics that count, worst class and NRGC, or every series.
  const reason = ({ row, score }, compared) => {
    if (score.lacks.length) return score.lacks.map((metric) => `${metric.name} ${row.cells[metric.column]}`).join(", ");
    if (!weights.some((weight) => weight > 0)) return "no metric counts";
    return compared < 2 ? "nothing to compare with" : "all rows are alike in every metric that counts";
  };
  const scoreCell = (line, compared) => {
    const { value, low, high } = line.score;
    const cell = element("td", { className: "score" });
    cell.dataset.label = "score";
    cell.dataset.value = value === null ? "" : String(value);
    cell.dataset.low = low === null ? "" : String(low);
    cell.dataset.high = high === null ? "" : String(high);
    if (value === null) {
      cell.append("none ", element("span", { className: "remark", textContent: reason(line, compared) }));
      cell.querySelector(".remark").style.whiteSpace = "normal";
      return cell;
    }
    cell.append(element("b", { textContent: format(value) }));
    if (low === null || high === null) {
      cell.append(" ", element("span", { className: "remark", textContent: "range unknown" }));
      return cell;
    }
    const [left, right] = ranking.SCALE;
    const cut = (share) => Math.min(1, Math.max(0, (share - left) / (right - left)));
    const beyond = [low < left ? "below" : "", high > right ? "above" : ""].filter((text) => text);
    const bar = element("span", { className: ["range", ...beyond].join(" "), ariaHidden: "true" }, element("i"), element("em"));
    bar.children[0].style.cssText = `left:${100 * cut(low)}%;right:${100 * (1 - cut(high))}%`;
    bar.children[1].style.left = `${100 * cut(value)}%`;
    const numbers = `${format(low)} to ${format(high)}`, wide = ranking.wide(line.score);
    cell.append(" ", element("span", { className: "remark", textContent: wide ? "wider than the scale" : numbers, title: wide ? numbers : "" }), bar);
    return cell;
  };
  const nameCell = ({ row, near, front, place }) => {
    const cell = element("th", { scope: "row" }, element("bdi", { textContent: row.name }));
    const facts = [row.n > 1 ? `n ${row.n}` : "", row.seeds ? `seed ${row.seeds}` : ""].filter((text) => text);
    if (facts.length) cell.append(element("span", { className: "remark", textContent: facts.join(", ") }));
    const chips = element("span");
    if (row.source) chips.append(element("span", { className: "chip published", textContent: "† published", title: row.source }));
    if (near && place !== 1) chips.append(element("span", { className: "chip note-chip", textContent: "not separated" }));
    if (near === null && place !== null) chips.append(element("span", { className: "chip note-chip", textContent: "separation unknown" }));
    if (front) chips.append(element("span", { className: "chip note-chip", textContent: "front" }));
    if (chips.children.length) cell.append(element("span", { className: "remark" }, chips));
    return cell;
  };
  const numberCell = (row, column, label) => {
    const shown = row.cells[column], time = board.columns[column].time;
    const cell = element("td", { className: "number" });
    cell.dataset.label = label;
    if (!known(shown)) {
      cell.dataset.value = "";
      cell.title = shown;
      cell.append("–");
      return cell;
    }
    const [value, low, high, sd] = shown;
    cell.dataset.value = String(value);
    cell.append(format(value, time));
    const remarks = [];
    if (!time && (low !== null || high !== null)) remarks.push(low === null ? `at most ${format(high)}` : high === null ? `at least ${format(low)}` : `${format(low)} to ${format(high)}`);
    if (sd !== null) remarks.push(`sd ${format(sd, time)}`);
    cell.append(element("span", { className: "remarks" }, ...remarks.map((remark) => element("span", { className: "remark", textContent: remark }))));
    return cell;
  };
  const worstCell = (row, label) => {
    const cell = numberCell(row, board.classes[0], label);
    if (row.worst) (cell.querySelector(".remarks") || cell).append(element("bdi", { className: "remark", textContent: `class ${row.worst}` }));
    return cell;
  };
  const columns = (compared) => {
    const counted = metrics().filter((metric) => metric.weight > 0);
    const taken = new Set(counted.map((metric) => metric.column));
    const made = [
      { title: "#", number: true, get: (line) => line.place, cell: (line) => element("td", { className: "place", textContent: line.place ?? "–" }) },
      { title: "model", get: (line) => line.row.name, cell: nameCell },
      { title: "score", get: (line) => line.score.value, down: true, cell: (line) => scoreCell(line, compared) },
    ];
    const add = (title, column, cell = numberCell) => made.push({
      title, number: true, hint: board.columns[column].key, down: !lower(column),
      get: ({ row }) => known(row.cells[column]) ? row.cells[column][0] : null, cell: ({ row }) => cell(row, column, title),
    });
    for (const metric of counted) add(metric.name, metric.column);
    const [worst, nrgc] = board.classes;
    if (worst >= 0 && !taken.has(worst)) add("worst", worst, (row, column, title) => worstCell(row, title));
    if (nrgc >= 0 && !taken.has(nrgc)) add("NRGC", nrgc);
    if ($("all-series").checked) {
      const there = new Set([...taken, worst, nrgc]);
      board.columns.forEach(({ key }, column) => { if (!there.has(column)) add(key, column); });
    }
    return made;
  };
  const table = $("rows");
  let heads = [];
  const fillTable = (compared) => {
    heads = columns(compared);
    if (order.column >= heads.length) order = { column: -1, direction: 1 };
    const line = element("tr");
    for (const { title, number, hint } of heads) {
      line.append(element("th", { scope: "col", className: number ? "number" : "", title: hint || "" }, element("button", { type: "button", textContent: title })));
    }
    table.tHead.replaceChildren(line);
    const sorted = [...shown];
    const get = order.column < 0 ? heads[0].get : heads[order.column].get;
    sorted.sort((a, b) => compare(get(a), get(b), order.direction) || compare(a.place, b.place, 1) || compare(a.row.name, b.row.name, 1));
    const body = element("tbody");
    for (const entry of sorted) {
      const made = element("tr", {}, ...heads.map((head) => head.cell(entry)));
      made.dataset.row = String(board.rows.indexOf(entry.row));
      body.append(made);
    }
    table.replaceChild(body, table.tBodies[0]);
    mark(table.tHead, order.column < 0 ? 0 : order.column, order.direction);
  };
  table.tHead.addEventListener("click", (event) => {
    const cell = event.target.closest("th");
    if (!cell) return;
    const column = cell.cellIndex;
    const first = heads[column].down ? -1 : 1;
    order = { column, direction: order.column === column ? -order.direction : first };
    refresh();
    table.tHead.rows[0].cells[column].querySelector("button").focus();
  });

  // The scatter: two metrics as axes, a third as size, the method as colour and shape.
  const fillAxes = () => {
    const names = board.metrics.map((metric) => option(metric.name, metric.title));
    for (const id of ["across", "up"]) $(id).replaceChildren(...names.map((choice) => choice.cloneNode(true)));
    $("size").replaceChildren(option("", "all alike"), ...names.map((choice) => choice.cloneNode(true)));
    const pick = (id, wanted, place) => { $(id).value = (board.metrics.find((metric) => metric.name === wanted) || board.metrics[place] || { name: "" }).name; };
    pick("across", "acc", 0);
    pick("up", "ar", 1);
    $("size").value = board.metrics.some((metric) => metric.name === "pr") ? "pr" : "";
    $("plot").hidden = board.metrics.length < 2;
  };
  const metricOf = (id) => board.metrics.find((metric) => metric.name === $(id).value);
  const fillPlot = () => {
    const x = metricOf("across"), y = metricOf("up"), size = metricOf("size");
    if (!x || !y || $("plot").hidden) return;
    const kinds = distinct(board.rows, "method");
    const colour = (kind) => kind < 0 ? grey : colours[kind % colours.length];
    const points = shown.filter(({ row }) => known(row.cells[x.column]) && known(row.cells[y.column])).map(({ row, front, place, score }) => {
      const kind = kinds.indexOf(row.method);
      const numbers = [x, y, ...(size ? [size] : [])].map((metric) => `${metric.name} ${known(row.cells[metric.column]) ? format(row.cells[metric.column][0], board.columns[metric.column].time) : "–"}`);
      const standing = place === null ? "no score" : `place ${place}, score ${format(score.value)}`;
      return {
        name: row.name, x: row.cells[x.column], y: row.cells[y.column], front: Boolean(front), kind: Math.max(0, kind), colour: colour(kind),
        size: size && known(row.cells[size.column]) ? row.cells[size.column][0] : null, row: board.rows.indexOf(row),
        label: `${row.name}${row.source ? " (published)" : ""}: ${numbers.join(", ")}; ${standing}${front ? "; on the front" : ""}`,
      };
    });
    const axis = (metric) => ({ name: metric.name === board.columns[metric.column].key ? metric.name : `${metric.name} (${board.columns[metric.column].key})`, lower: lower(metric.column) });
    scatter.draw($("scatter"), points, axis(x), axis(y), (point, shape) => {
      $("point").textContent = point.label;
      document.querySelectorAll(".lit").forEach((lit) => lit.classList.remove("lit"));
      shape.classList.add("lit");
      table.querySelector(`tr[data-row="${point.row}"]`)?.classList.add("lit");
    });
    const drawn = kinds.filter((kind) => shown.some(({ row }) => row.method === kind));
    $("key").replaceChildren(...(drawn.length > 1 ? drawn : []).map((kind) => element("span", {}, scatter.swatch(kinds.indexOf(kind), colour(kinds.indexOf(kind))), element("bdi", { textContent: kind }))));
  };

  const summarise = ({ even, compared }) => {
    const leaders = shown.filter((line) => line.place === 1).map((line) => line.row.name);
    const near = shown.filter((line) => line.near && line.place !== 1).length;
    const unknown = shown.filter((line) => line.near === null && line.place !== null).length;
    const parts = [`${shown.length} of ${board.rows.length} rows`];
    if (leaders.length) parts.push(`first: ${leaders.slice(0, 3).join(", ")}${leaders.length > 3 ? " ..." : ""}`);
    if (leaders.length) parts.push(near ? `not separated from it: ${near}` : unknown ? "" : "all others are separated from it");
    if (shown.length > compared) parts.push(`without a score: ${shown.length - compared}`);
    if (even.length) parts.push(`alike in all, so not counted: ${even.join(", ")}`);
    $("summary").textContent = parts.filter((part) => part).join("; ") + ".";
  };

  const refresh = () => {
    const ranked = rank();
    showWeights();
    fillTable(ranked.compared);
    fillPlot();
    summarise(ranked);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["dataset", "threat"]) fields[name].addEventListener("change", () => { fillBoards(); refresh(); });
  for (const name of ["architecture", "method", "text", "published"]) fields[name].addEventListener("input", refresh);
  fields.board.addEventListener("change", () => { choose(Number(fields.board.value)); refresh(); });
  $("all-series").addEventListener("change", refresh);
  for (const id of ["across", "up", "size"]) $(id).addEventListener("change", fillPlot);
  $("as-given").addEventListener("click", () => { asGiven(); fillWeights(); refresh(); });
  $("equal").addEventListener("click", () => { weights = weights.map((weight) => weight > 0 ? 1 : 0); fillWeights(); refresh(); });
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(fillPlot, 120); });
  if (boards.length) {
    form.hidden = false;
    $("weighing").open = innerWidth > 700;
    const every = boards.flatMap((each) => each.rows);
    fill(fields.dataset, distinct(every, "dataset"), "all");
    fill(fields.threat, distinct(every, "threat"), "all");
    fillBoards();
    refresh();
  }
})();
