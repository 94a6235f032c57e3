// The mathematics of the ranking, as services/numerics/composite.py has it; a test holds the two together.
const ranking = (() => {
  const SAME = 1e-12, DIGITS = 12, SCALE = [-0.5, 1.5];
  const known = (cell) => Array.isArray(cell);

  // Composite of each row with its range: { value, low, high, lacks }; metrics as { column, weight, lower, name }.
  const composite = (rows, metrics) => {
    const counted = metrics.filter((metric) => metric.weight > 0);
    const lacks = rows.map((row) => counted.filter((metric) => !known(row.cells[metric.column])));
    const compared = rows.filter((row, place) => !lacks[place].length);
    const scales = counted.map((metric) => {
      const values = compared.map((row) => row.cells[metric.column][0]);
      const bottom = Math.min(...values), top = Math.max(...values);
      const spread = values.length > 0 && top - bottom > SAME * Math.max(Math.abs(top), Math.abs(bottom));
      const [worst, best] = metric.lower ? [top, bottom] : [bottom, top];
      return { ...metric, worst, best, spread };
    });
    const telling = scales.filter((scale) => scale.spread);
    const total = telling.reduce((sum, scale) => sum + scale.weight, 0);
    const side = (row, pick) => {
      let sum = 0;
      for (const scale of telling) {
        const value = row.cells[scale.column][pick(scale)];
        if (value === null) return null;
        sum += scale.weight * ((value - scale.worst) / (scale.best - scale.worst));
      }
      return sum / total;
    };
    const scores = rows.map((row, place) => {
      if (lacks[place].length || !telling.length) return { value: null, low: null, high: null, lacks: lacks[place] };
      return { value: side(row, () => 0), low: side(row, (s) => s.lower ? 2 : 1), high: side(row, (s) => s.lower ? 1 : 2), lacks: [] };
    });
    return { scores, even: scales.filter((scale) => !scale.spread && telling.length).map((scale) => scale.name), compared: compared.length };
  };

  // Place 1 is the largest score; equal ones share a place and the next is left out.
  const places = (scores) => {
    const rounded = scores.map((score) => score.value === null ? null : Number(score.value.toFixed(DIGITS)));
    return rounded.map((value) => value === null ? null : 1 + rounded.filter((other) => other !== null && other > value).length);
  };

  // Whether each score's range reaches that of the first of the leaders; null where a range is unknown.
  const withLeader = (scores, order) => {
    const leader = order.indexOf(1);
    const bar = leader < 0 ? null : scores[leader].low;
    return scores.map((score, place) => order[place] === 1 ? true : order[place] === null || bar === null || score.high === null ? null : score.high >= bar);
  };

  // Whether a score's range is wider than what is drawn of the scale, as Standing.wide of tracking/leaderboard/records.py.
  const wide = ({ low, high }) => low !== null && high !== null && high - low > SCALE[1] - SCALE[0];

  // Whether no row is at least as good in all criteria and better in one; criteria as { column, lower }.
  const front = (rows, criteria) => {
    const points = rows.map((row) => criteria.every(({ column }) => known(row.cells[column]))
      ? criteria.map(({ column, lower }) => row.cells[column][0] * (lower ? -1 : 1)) : null);
    return points.map((point) => point && criteria.length ? !points.some((other) => other
      && other.every((value, place) => value >= point[place]) && other.some((value, place) => value > point[place])) : null);
  };

  return { composite, places, withLeader, wide, front, known, SCALE };
})();
