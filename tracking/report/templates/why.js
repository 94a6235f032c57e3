// Why a class is weak: confusion matrices, the pairs of classes as a table, and the gallery. All drawn when asked for.
(() => {
  const { compare, mark, option } = classwise;
  const percent = (share) => share === null ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const data = (id) => { const source = document.getElementById(id); return source && JSON.parse(source.textContent); };
  const short = (name, most = 40) => name.length > most ? name.slice(0, most - 1) + "…" : name;
  const named = (classes, place) => place < 0 ? "no class" : classes[place] ?? String(place);

  const matrices = (all) => {
    const form = document.getElementById("confusion-filters"), { model, under, less, text } = form.elements;
    all.models.forEach((name, place) => { if (all.parts.some((part) => part.model === place)) model.append(option(place, name)); });
    const own = () => all.parts.filter((part) => part.model === Number(model.value));
    const titles = () => {
      const kept = under.value;
      const parts = own();
      under.replaceChildren(...parts.map((part) => option(part.title, part.under)));
      const preferred = parts.find((part) => part.title === kept) || parts.find((part) => part.attack) || parts[0];
      under.value = preferred.title;
    };
    const others = () => {
      const kept = less.value, title = under.value;
      const choices = [option("", "nothing")];
      const clean = own().find((part) => !part.attack);
      if (clean && clean.title !== title) choices.push(option("clean", "without an attack"));
      all.parts.filter((part) => part.title === title && part.model !== Number(model.value))
        .forEach((part) => choices.push(option(part.model, all.models[part.model])));
      less.replaceChildren(...choices);
      if (choices.some((choice) => choice.value === kept)) less.value = kept;
    };
    const shares = (part) => new Map(part.cells.map((cell) => [`${cell[0]},${cell[1]}`, cell]));
    const PAGE = 12;
    let order = [3, -1], shown = PAGE;
    const table = document.getElementById("confusion-pairs");
    const fill = () => {
      const part = own().find((each) => each.title === under.value);
      const base = less.value === "" ? null : less.value === "clean" ? own().find((each) => !each.attack)
        : all.parts.find((each) => each.title === part.title && each.model === Number(less.value));
      const here = shares(part), there = base && shares(base), clean = own().find((each) => !each.attack);
      const before = clean && shares(clean);
      const share = (map, label, to) => { const cell = map.get(`${label},${to}`); return cell ? cell[2] / cell[3] : 0; };
      document.getElementById("confusion-note").textContent = base
        ? "Differences in points of the share; bold on the diagonal: what keeps its class."
        : "A row is a class, a column what its samples are taken for; classes that are taken for each other stand side by side.";
      if (part.unsound) document.getElementById("confusion-note").textContent += " This attack was inadequate on the model: a better one leads at least as many astray.";
      draw(part, base, here, there, share);
      const wanted = text.value.trim().toLowerCase();
      const rows = part.cells.filter((cell) => cell[0] !== cell[1]).map((cell) => ({
        values: [named(all.classes, cell[0]), named(all.classes, cell[1]), `${cell[2]} of ${cell[3]}`, cell[2] / cell[3], cell[4], cell[5],
          before && part.attack ? share(before, cell[0], cell[1]) : null, there ? cell[2] / cell[3] - share(there, cell[0], cell[1]) : null],
        count: cell[2],
      })).filter((row) => !wanted || `${row.values[0]} ${row.values[1]}`.toLowerCase().includes(wanted));
      const [column, direction] = order;
      const key = (row) => column === 2 ? row.count : row.values[column];
      rows.sort((a, b) => compare(key(a), key(b), direction) || b.count - a.count);
      const body = document.createElement("tbody");
      for (const row of rows.slice(0, shown)) {
        const line = body.insertRow();
        row.values.forEach((value, place) => {
          const cell = line.insertCell();
          if (place > 1) cell.className = "number";
          const points = place === 7 && value !== null;
          const content = place < 3 ? short(String(value)) : points ? `${value > 0 ? "+" : ""}${(100 * value).toFixed(0)}` : percent(value);
          cell.append(element("bdi", { textContent: content, title: String(value ?? "") }));
        });
      }
      table.replaceChild(body, table.tBodies[0]);
      mark(table.tHead, column, direction);
      document.getElementById("confusion-more").hidden = rows.length <= shown;
      document.getElementById("confusion-count").textContent = rows.length
        ? `${rows.length.toLocaleString()} pairs of classes, ${Math.min(shown, rows.length)} shown.${part.cut ? " The largest; all are in the bundle's confusions." : ""}`
        : wanted ? "No pair of classes with that name." : `No sample went to another class ${part.under}.`;
    };
    const draw = (part, base, here, there, share) => {
      const box = document.getElementById("confusion-matrix");
      box.hidden = !part.order.length || part.cut;
      if (box.hidden) return;
      const nowhere = part.cells.some((cell) => cell[1] < 0);
      const columns = nowhere ? [...part.order, -1] : part.order;
      const present = part.order.filter((label) => part.cells.some((cell) => cell[0] === label));
      const drawn = element("table", { className: "matrix" + (columns.length > 20 ? " dense" : "") });
      drawn.append(element("caption", { className: "note", textContent: `Share of each class (row) by what it is taken for (column) ${part.under}` }));
      const head = drawn.createTHead().insertRow();
      head.append(element("td"), ...columns.map((to) => element("th", { scope: "col" }, element("span", { textContent: short(named(all.classes, to), 14), title: named(all.classes, to) }))));
      const body = drawn.createTBody();
      for (const label of present) {
        const line = body.insertRow();
        line.append(element("th", { scope: "row", textContent: short(named(all.classes, label), 14), title: named(all.classes, label) }));
        for (const to of columns) {
          const value = share(here, label, to) - (there ? share(there, label, to) : 0), size = Math.abs(value);
          const cell = line.insertCell();
          const known = here.get(`${label},${to}`);
          const limits = known && !there ? `, ${percent(known[4])} to ${percent(known[5])}, ${known[2]} of ${known[3]}` : "";
          cell.title = `${named(all.classes, label)} to ${named(all.classes, to)}: ${there ? `${(100 * value).toFixed(1)} points` : percent(value)}${limits}`;
          cell.className = (label === to ? "kept" : "went") + (value < 0 ? " fell" : "");
          cell.style.setProperty("--share", `${Math.min(100, Math.round(100 * size))}%`);
          if (size >= 0.005) cell.textContent = `${there && value > 0 ? "+" : ""}${Math.round(100 * value)}`;
        }
      }
      box.replaceChildren(drawn);
    };
    const again = () => { shown = PAGE; others(); fill(); };
    model.addEventListener("change", () => { titles(); again(); });
    under.addEventListener("change", again);
    less.addEventListener("change", fill);
    let waiting = 0;
    text.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(fill, 120); });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("confusion-more").addEventListener("click", () => { shown += 100; fill(); });
    table.tHead.addEventListener("click", (event) => {
      const cell = event.target.closest("th");
      if (!cell) return;
      order = [cell.cellIndex, order[0] === cell.cellIndex ? -order[1] : cell.cellIndex < 2 ? 1 : -1];
      fill();
    });
    titles();
    again();
  };

  const gallery = (all) => {
    const form = document.getElementById("gallery-filters"), { model, label, after } = form.elements;
    const grid = document.getElementById("gallery-grid"), more = document.getElementById("gallery-more");
    const PAGE = 8;
    let shown = PAGE;
    const chosen = (...fields) => all.entries.filter((entry) => (model.value === "" || entry.model === Number(model.value))
      && fields.every(([field, select]) => select.value === "" || entry[field] === Number(select.value)));
    const classesOf = (field, entries) => [...new Set(entries.map((entry) => entry[field]))].map((place) => [place, named(all.classes, place)]);
    const refill = (select, field, entries) => {
      const kept = select.value;
      select.replaceChildren(option("", "all"), ...classesOf(field, entries).map(([place, name]) => option(place, name)));
      if ([...select.options].some((choice) => choice.value === kept)) select.value = kept;
    };
    const card = (entry) => {
      const [from, to] = [entry.label, entry.after].map((place) => named(all.classes, place));
      const what = entry.key || `sample ${entry.id}`;
      const times = entry.gain >= 10 ? Math.round(entry.gain) : Number(entry.gain.toPrecision(2));
      const texts = [
        [`original: ${from}`, `${what}, a ${from}, taken for ${named(all.classes, entry.before)}`],
        [`adversarial: ${to}`, `the same image after the attack, taken for ${to}`],
        [`change, ${times}× stronger`, `what the attack changed, ${times} times stronger around grey; the largest change is ${entry.linf} of 1`],
      ];
      const figure = element("figure", { className: "example" });
      figure.append(element("figcaption", {}, element("b", {}, element("bdi", { textContent: short(from, 30) }), " → ", element("bdi", { textContent: short(to, 30) })),
        element("span", { className: "note", textContent: all.models.length > 1 ? `  ${short(all.models[entry.model], 40)}` : "" })));
      const row = element("div", { className: "trio" });
      entry.pictures.forEach((source, place) => row.append(element("div", {},
        element("img", { src: source, alt: texts[place][1], loading: "lazy", decoding: "async", width: 96, height: 96 }),
        element("span", { className: "note", textContent: texts[place][0] }))));
      const rounded = entry.rounded ? "" : " Rounded to 8 bits, as shown, it is taken for its class again.";
      figure.append(row, element("p", { className: "note full", textContent:
        `L2 ${entry.l2}, Linf ${entry.linf}; margin ${entry.margin_before} before, ${entry.margin_after} after; number ${entry.rank} to fall of ${entry.of} that fell. ${what}.${rounded}` }));
      return figure;
    };
    const fill = () => {
      const entries = chosen(["label", label], ["after", after]);
      grid.replaceChildren(...entries.slice(0, shown).map(card));
      more.hidden = entries.length <= shown;
      const rest = all.total - all.entries.length;
      document.getElementById("gallery-count").textContent = `${entries.length} of ${all.entries.length} samples, ${Math.min(shown, entries.length)} shown.`
        + (rest > 0 ? ` ${rest.toLocaleString()} more are in the bundle's gallery.` : "");
    };
    const again = () => { shown = PAGE; refill(label, "label", chosen()); refill(after, "after", chosen(["label", label])); fill(); };
    all.models.forEach((name, place) => { if (all.entries.some((entry) => entry.model === place)) model.append(option(place, name)); });
    if (model.options.length > 2) model.value = model.options[1].value;
    form.addEventListener("change", again);
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => {
      const next = grid.children.length;
      shown += 24;
      fill();
      grid.children[next].tabIndex = -1;
      grid.children[next].focus();
    });
    again();
  };

  requestAnimationFrame(() => setTimeout(() => {
    const confusions = data("confusion-data"), pictures = data("gallery-data");
    if (confusions) matrices(confusions);
    if (pictures) gallery(pictures);
  }));
})();
