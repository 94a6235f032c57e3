(() => {
  const { compare, mark, number, option } = classwise;

  // Figures: drawn when they come into view, the library run before the first one, so that a large report opens immediately.
  const style = () => getComputedStyle(document.documentElement);
  const draw = (canvas) => {
    const source = document.querySelector(`script[data-for="${canvas.id}"]`);
    const { data, layout } = JSON.parse(source.textContent);
    const line = style().getPropertyValue("--line").trim();
    const themed = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    themed.font = { ...layout.font, color: style().getPropertyValue("--fg").trim() };
    for (const key of Object.keys(themed)) {
      if (/^[xy]axis/.test(key)) themed[key] = { ...themed[key], gridcolor: line, linecolor: line };
    }
    if (themed.polar) {
      const axis = { gridcolor: line, linecolor: line };
      themed.polar = { ...themed.polar, radialaxis: { ...themed.polar.radialaxis, ...axis }, angularaxis: { ...themed.polar.angularaxis, ...axis } };
    }
    if (!window.Plotly) document.head.append(Object.assign(document.createElement("script"), { textContent: library.textContent }));
    const shown = fitted({ data, layout: themed }, canvas);
    window.Plotly.react(canvas, shown.data, shown.layout, { responsive: true, displayModeBar: false, displaylogo: false, scrollZoom: false });
    canvas.dataset.drawn = String(canvas.parentElement.clientWidth);
  };
  // On a narrow screen panels that stand side by side go below each other, and a wide matrix scrolls. Numbers stand in
  // the cells of a matrix where there is room for them.
  const NARROW = 640, CELL = 34;
  const suffix = (place) => place ? String(place + 1) : "";
  const fitted = (figure, canvas) => {
    const panels = Object.keys(figure.layout).filter((key) => /^xaxis\d*$/.test(key)).length;
    const width = canvas.parentElement.clientWidth;
    const columns = figure.data[0].type === "heatmap" ? figure.data[0].z[0].length : 0;
    const beside = columns ? 130 + 7 * Math.max(...figure.layout.yaxis.ticktext.map((text) => text.length)) : 0;
    const least = Math.max(width, beside + CELL * columns);
    canvas.style.minWidth = columns && width < NARROW ? `${least}px` : "";
    if (columns && width >= NARROW && least > width) return { ...figure, data: figure.data.map((trace) => ({ ...trace, texttemplate: "" })) };
    if (panels < 2 || width >= NARROW) return figure;
    const gap = 70, height = figure.layout.height * panels + gap * (panels - 1);
    const layout = { ...figure.layout, height };
    const data = figure.data.map((trace) => ({ ...trace, yaxis: trace.xaxis.replace("x", "y") }));
    for (let place = 0; place < panels; place++) {
      const own = figure.layout[`yaxis${suffix(place)}`] || figure.layout.yaxis;
      const top = 1 - place * (figure.layout.height + gap) / height;
      const bottom = top - figure.layout.height / height;
      layout[`xaxis${suffix(place)}`] = { ...figure.layout[`xaxis${suffix(place)}`], domain: [0, 1], anchor: `y${suffix(place)}` };
      layout[`yaxis${suffix(place)}`] = { ...own, domain: [Math.max(0, bottom), top], anchor: `x${suffix(place)}` };
    }
    delete layout.grid;
    return { data, layout };
  };
  // A window of another width, or a phone that is turned: figures in sight are laid out anew.
  let resizing = 0;
  const refit = () => {
    for (const canvas of canvases) {
      const width = canvas.parentElement.clientWidth;
      if (canvas.dataset.drawn && width && canvas.dataset.drawn !== String(width)) draw(canvas);
    }
  };
  const canvases = [...document.querySelectorAll(".canvas")];
  const library = document.getElementById("plotly");
  if (library && canvases.length) {
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
      }
    }, { rootMargin: "600px" });
    canvases.forEach((canvas) => watcher.observe(canvas));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvases.filter((c) => c.dataset.drawn).forEach(draw));
    addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(refit, 150); });
  }
  for (const select of document.querySelectorAll("select[data-picks]")) {
    const kind = select.dataset.picks;
    const pick = () => {
      for (const plot of document.querySelectorAll(`figure.plot[data-${kind}]`)) plot.hidden = plot.dataset[kind] !== select.value;
      refit();
    };
    select.addEventListener("change", pick);
    pick(); // a browser may restore an earlier choice on reload
  }

  // The verdict table sorts by its cells.
  const verdicts = document.getElementById("verdicts");
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value === undefined) return cell.textContent.trim();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  let verdictOrder = [-1, 1];
  verdicts.tHead.addEventListener("click", (event) => {
    const cell = event.target.closest("th");
    if (!cell) return;
    const column = cell.cellIndex;
    const direction = verdictOrder[0] === column ? -verdictOrder[1] : 1;
    verdictOrder = [column, direction];
    const rows = [...verdicts.tBodies[0].rows];
    rows.sort((a, b) => compare(valueOf(a, column), valueOf(b, column), direction));
    verdicts.tBodies[0].append(...rows);
    mark(verdicts.tHead, column, direction);
  });
  const open = () => {
    const target = location.hash.startsWith("#model-") && document.getElementById(location.hash.slice(1));
    for (let part = target; part; part = part.parentElement.closest("details")) part.open = true;
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => document.querySelectorAll("details.part").forEach((part) => { part.open = true; }));
  open();

  // Every class: only the rows in view are in the document.
  const everyClass = () => {
    const table = JSON.parse(document.getElementById("table-data").textContent);
    const form = document.getElementById("filters");
    table.models.forEach((name, place) => form.elements.model.append(option(place, name)));
    table.series.forEach((name, place) => form.elements.series.append(option(place, name)));
    form.elements.series.append(option("", "all"));
    const group = (row) => table.groups[row[1]][row[2]];
    const flags = (row) => [[1, "worst"], [2, "not separated"], [4, "interval excludes nothing"]].filter(([bit]) => row[7] & bit).map(([, text]) => text).join(", ");
    const columns = [
      ["model", (row) => table.models[row[0]]],
      ["measure", (row) => table.series[row[1]]],
      ["class", group, true],
      ["n", (row) => row[3]],
      ["score", (row) => row[4], false, number],
      ["at least", (row) => row[5], false, number],
      ["at most", (row) => row[6], false, number],
      ...(table.refuted ? [["refuted", (row) => row[8], false, (share) => `${(100 * share).toFixed(1)} %`]] : []),
    ];
    const PAGE = 30;
    let order = [4, 1];
    let shown = PAGE;
    let chosen = [];
    const perClass = document.getElementById("per-class");
    const head = perClass.tHead.insertRow();
    for (const [title] of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.append(Object.assign(document.createElement("button"), { type: "button", textContent: title }));
      head.append(cell);
    }
    const fill = () => {
      const body = document.createElement("tbody");
      for (const row of chosen.slice(0, shown)) {
        const line = body.insertRow();
        for (const [, get, , format = String] of columns) {
          const value = get(row);
          const cell = line.insertCell();
          const full = value === null ? "–" : format(value);
          const inner = document.createElement("bdi");
          inner.textContent = full.length > 60 ? full.slice(0, 59) + "…" : full;
          if (full.length > 60) cell.title = full.slice(0, 1000);
          if (typeof value === "number" || value === null) cell.className = "number";
          cell.append(inner);
          if (get === group && row[7]) cell.append(Object.assign(document.createElement("span"), { className: "remark", textContent: flags(row) }));
        }
      }
      perClass.replaceChild(body, perClass.tBodies[0]);
      document.getElementById("more").hidden = chosen.length <= shown;
      const missing = table.total - table.rows.length;
      const note = missing > 0 ? ` The weakest of each profile; ${missing.toLocaleString()} more rows are in the Parquet tables.` : "";
      document.getElementById("count").textContent = `${chosen.length.toLocaleString()} of ${table.rows.length.toLocaleString()} rows, ${Math.min(shown, chosen.length)} shown.${note}`;
    };
    const choose = () => {
      const model = form.elements.model.value, series = form.elements.series.value, weak = form.elements.weak.checked;
      const wanted = form.elements.text.value.trim().toLowerCase();
      chosen = table.rows.filter((row) => (model === "" || row[0] === Number(model)) && (series === "" || row[1] === Number(series))
        && (!weak || row[7] & 3) && (!wanted || group(row).toLowerCase().includes(wanted)));
      perClass.classList.toggle("one-measure", series !== "");
      const [column, direction] = order;
      const get = columns[column][1];
      chosen.sort((a, b) => compare(get(a), get(b), direction) || a[0] - b[0] || a[2] - b[2]);
      shown = PAGE;
      fill();
      mark(perClass.tHead, column, direction);
    };
    perClass.tHead.addEventListener("click", (event) => {
      const cell = event.target.closest("th");
      if (!cell) return;
      order = [cell.cellIndex, order[0] === cell.cellIndex ? -order[1] : 1];
      choose();
    });
    let waiting = 0;
    form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(choose, 120); });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("more").addEventListener("click", () => { shown += 300; fill(); });
    choose();
  };
  // After the first paint, so that a large table does not hold up the verdict.
  requestAnimationFrame(() => setTimeout(everyClass));
})();
