// Rows as points with intervals and the front of the two axes, drawn as SVG; all names are set as text.
const scatter = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const make = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };
  // Marks by kind, around 0, of radius 1: colour is never the only sign.
  const SHAPES = [
    (r) => `M${-r},0 A${r},${r} 0 1 0 ${r},0 A${r},${r} 0 1 0 ${-r},0 Z`,
    (r) => `M${-r * 0.9},${-r * 0.9} H${r * 0.9} V${r * 0.9} H${-r * 0.9} Z`,
    (r) => `M0,${-r * 1.2} L${r * 1.1},${r * 0.8} H${-r * 1.1} Z`,
    (r) => `M0,${-r * 1.3} L${r * 1.1},0 L0,${r * 1.3} L${-r * 1.1},0 Z`,
    (r) => `M0,${r * 1.2} L${r * 1.1},${-r * 0.8} H${-r * 1.1} Z`,
    (r) => `M${-r * 0.4},${-r} H${r * 0.4} V${-r * 0.4} H${r} V${r * 0.4} H${r * 0.4} V${r} H${-r * 0.4} V${r * 0.4} H${-r} V${-r * 0.4} H${-r * 0.4} Z`,
  ];
  const shape = (kind, radius) => SHAPES[kind % SHAPES.length](radius);

  const ticks = (low, high, most) => {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
    const places = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) places.push(at * step);
    return { step, places };
  };
  const spoken = (value, step) => value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  // The ends of an axis: points and most of their intervals, with some air.
  const extent = (cells) => {
    const values = cells.map((cell) => cell[0]);
    let low = Math.min(...values), high = Math.max(...values);
    const room = (high - low) || Math.abs(high) || 1;
    low = Math.max(low - room / 2, Math.min(low, ...cells.map((cell) => cell[1] ?? cell[0])));
    high = Math.min(high + room / 2, Math.max(high, ...cells.map((cell) => cell[2] ?? cell[0])));
    const air = (high - low || room) * 0.05;
    return [low - air, high + air];
  };

  // The staircase through the points that no other beats on both axes.
  const staircase = (points, x, y, box) => {
    const best = points.filter((p) => !points.some((q) => q.gx >= p.gx && q.gy >= p.gy && (q.gx > p.gx || q.gy > p.gy)));
    best.sort((p, q) => p.gx - q.gx || q.gy - p.gy);
    if (!best.length) return "";
    const start = x.lower ? box.right : box.left, end = y.lower ? box.top : box.bottom;
    let path = `M${start},${best[0].py}`;
    best.forEach((p, place) => {
      path += ` H${p.px}`;
      path += best[place + 1] ? ` V${best[place + 1].py}` : ` V${end}`;
    });
    return path;
  };

  const overlaps = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  // Names beside points of the front, where they hide no point and no other name.
  const label = (svg, points, box) => {
    const taken = points.map((p) => ({ left: p.px - p.r, right: p.px + p.r, top: p.py - p.r, bottom: p.py + p.r }));
    for (const point of points.filter((p) => p.front).slice(0, 14)) {
      const text = point.name.length > 26 ? point.name.slice(0, 25) + "…" : point.name;
      const wide = 6.9 * text.length, gap = point.r + 5;
      const spots = [[point.px, point.py - gap - 3, "middle"], [point.px + gap, point.py - gap, "start"], [point.px - gap, point.py + gap + 9, "end"], [point.px, point.py + gap + 11, "middle"], [point.px + gap, point.py + 4, "start"]];
      for (const [x, y, anchor] of spots) {
        const left = anchor === "start" ? x : anchor === "end" ? x - wide : x - wide / 2;
        const area = { left, right: left + wide, top: y - 11, bottom: y + 3 };
        if (area.left < box.left || area.right > box.right || area.top < box.top || area.bottom > box.bottom) continue;
        if (taken.some((other) => overlaps(area, other))) continue;
        taken.push(area);
        svg.append(make("text", { x, y, "text-anchor": anchor, class: "name" }, text));
        break;
      }
    }
  };

  // points: { name, x, y, size, kind, colour, front, label }, x and y cells of [value, low, high].
  const draw = (host, points, x, y, onPick) => {
    host.replaceChildren();
    if (!points.length) {
      host.append(Object.assign(document.createElement("p"), { className: "note", textContent: "No row has both numbers." }));
      return;
    }
    const width = Math.max(300, host.clientWidth), height = Math.round(Math.min(520, Math.max(320, width * 0.55)));
    const box = { left: 52, right: width - 14, top: 12, bottom: height - 46 };
    const [x0, x1] = extent(points.map((p) => p.x)), [y0, y1] = extent(points.map((p) => p.y));
    const toX = (value) => box.left + (Math.min(x1, Math.max(x0, value)) - x0) / (x1 - x0) * (box.right - box.left);
    const toY = (value) => box.bottom - (Math.min(y1, Math.max(y0, value)) - y0) / (y1 - y0) * (box.bottom - box.top);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${y.name} against ${x.name}` });
    const across = ticks(x0, x1, width < 500 ? 4 : 8), up = ticks(y0, y1, 6);
    for (const at of across.places) {
      svg.append(make("line", { class: "grid", x1: toX(at), x2: toX(at), y1: box.top, y2: box.bottom }));
      svg.append(make("text", { class: "tick", x: toX(at), y: box.bottom + 17, "text-anchor": "middle" }, spoken(at, across.step)));
    }
    for (const at of up.places) {
      svg.append(make("line", { class: "grid", x1: box.left, x2: box.right, y1: toY(at), y2: toY(at) }));
      svg.append(make("text", { class: "tick", x: box.left - 7, y: toY(at) + 4, "text-anchor": "end" }, spoken(at, up.step)));
    }
    const direction = (axis) => axis.lower ? " (lower is better)" : "";
    svg.append(make("text", { x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle" }, x.name + direction(x)));
    svg.append(make("text", { x: 14, y: (box.top + box.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(box.top + box.bottom) / 2})` }, y.name + direction(y)));
    const sizes = points.map((p) => p.size).filter((size) => size !== null);
    const least = Math.min(...sizes), most = Math.max(...sizes);
    const placed = points.map((p) => ({
      ...p, px: toX(p.x[0]), py: toY(p.y[0]), gx: p.x[0] * (x.lower ? -1 : 1), gy: p.y[0] * (y.lower ? -1 : 1),
      r: p.size === null || most === least ? 6 : 4 + 6 * (p.size - least) / (most - least),
    }));
    svg.append(make("path", { class: "front", d: staircase(placed, x, y, box) }));
    for (const point of [...placed].sort((a, b) => b.r - a.r)) {
      const mark = make("g", { class: "mark", tabindex: 0, role: "img", "aria-label": point.label });
      for (const [cell, to, place] of [[point.x, toX, "x"], [point.y, toY, "y"]]) {
        if (cell[1] === null || cell[2] === null) continue;
        const ends = place === "x" ? { x1: to(cell[1]), x2: to(cell[2]), y1: point.py, y2: point.py } : { x1: point.px, x2: point.px, y1: to(cell[1]), y2: to(cell[2]) };
        mark.append(make("line", { ...ends, stroke: point.colour }));
      }
      mark.append(make("path", { d: shape(point.kind, point.r), transform: `translate(${point.px} ${point.py})`, stroke: point.colour, fill: point.front ? point.colour : "var(--bg)" }));
      for (const event of ["focus", "pointerenter", "click"]) mark.addEventListener(event, () => onPick(point, mark));
      svg.append(mark);
    }
    label(svg, placed, box);
    host.append(svg);
  };

  const swatch = (kind, colour) => {
    const svg = make("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" });
    svg.append(make("path", { d: shape(kind, 6), fill: colour }));
    return svg;
  };
  return { draw, swatch };
})();
