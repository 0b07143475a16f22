"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tools = document.getElementById("tools"), smoothing = document.getElementById("smoothing");
  const axes = data.axes.map(differences => { let step = 0; return differences.map(each => step += each); });
  const clocks = data.clocks.map(([axis, seconds]) => ({steps: axes[axis], seconds}));
  const built = new Map(), wanted = new Set();
  let range = null, zooming = false, byTime = false;

  // Seconds at a step, between the steps that are known.
  const secondsAt = (clock, step) => {
    const {steps, seconds} = clock;
    let right = steps.findIndex(each => each >= step);
    if (right < 0) right = steps.length - 1;
    const left = Math.max(0, right - 1), width = steps[right] - steps[left];
    return width ? seconds[left] + (seconds[right] - seconds[left]) * (step - steps[left]) / width : seconds[right];
  };
  const times = new Map();
  const placesOf = series => {
    const steps = axes[series.points[0]];
    if (!byTime || !clocks[series.job].steps.length) return byTime ? [] : steps;
    const key = `${series.job}:${series.points[0]}`;
    if (!times.has(key)) times.set(key, steps.map(step => secondsAt(clocks[series.job], step)));
    return times.get(key);
  };
  const smooth = (values, weight) => {
    let last = 0, sum = 0;
    return values.map(value => {
      if (value === null) return null;
      last = last * weight + value * (1 - weight);
      sum = sum * weight + (1 - weight);
      return last / sum;
    });
  };
  const number = value => {
    if (value == null) return "";
    const size = Math.abs(value);
    if (size >= 1e4 && size < 1e9) return size < 1e6 ? `${+(value / 1e3).toPrecision(4)}k` : `${+(value / 1e6).toPrecision(4)}M`;
    return size && (size < 1e-3 || size >= 1e9) ? value.toExponential(2).replace(/\.?0+e/, "e") : `${+value.toPrecision(4)}`;
  };
  const time = seconds => {
    const minutes = Math.floor(seconds / 60), pad = value => String(value).padStart(2, "0");
    return minutes < 60 ? `${minutes}:${pad(Math.floor(seconds % 60))}` : `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(Math.floor(seconds % 60))}`;
  };
  const zoom = (source, least, most) => {
    if (zooming) return;
    zooming = true;
    range = [least, most];
    for (const chart of built.values()) if (chart !== source) chart.setScale("x", {min: least, max: most});
    zooming = false;
  };

  function build(figure) {
    const stacked = figure.dataset.chart === "stack";
    const chart = stacked ? {series: data.stack} : data.charts[figure.dataset.chart];
    const weight = stacked ? 0 : +smoothing.value, spread = chart.spread && chart.series.length === 3;
    const lines = chart.series.filter(each => placesOf(each).length);
    const colour = place => data.colours[place % data.colours.length];
    const values = lines.map(each => each.points[1]);
    const tables = [], series = [{label: byTime ? "Time" : "Step"}], raw = [];
    const add = (line, points, options) => { tables.push([placesOf(line), points]); series.push({width: 1.5, points: {size: 5}, spanGaps: false, ...options}); };
    const shown = {value: (chart, value, at, place) => number(place == null ? chart.data[at].findLast(each => each != null) : value)};
    if (stacked) {
      let sums = values[0].map(() => 0);
      const tops = values.map(part => sums = sums.map((sum, place) => sum + part[place]));
      lines.map((line, at) => at).reverse().forEach(at => {
        raw.push(values[at]);
        add(lines[at], tops[at], {label: lines[at].label, stroke: colour(at), fill: colour(at), width: 0, points: {show: false},
          value: (chart, value, part, place) => number(place == null ? raw[part - 1].at(-1) : raw[part - 1][place])});
      });
    } else {
      if (weight) lines.forEach((line, at) => add(line, values[at], {label: "", stroke: `${colour(spread ? 0 : lines.length > 1 && data.clocks.length > 1 ? line.job : at)}40`, width: 1, points: {show: false}}));
      lines.forEach((line, at) => {
        const edge = spread && at, tint = colour(spread ? 0 : data.clocks.length > 1 ? line.job : at);
        add(line, weight ? smooth(values[at], weight) : values[at], {label: line.label, stroke: edge ? `${tint}70` : tint, width: edge || values[at].length > 400 ? 1 : 1.5, points: {size: 5, fill: tint, show: edge ? false : undefined}, ...shown});
      });
    }
    const grid = {stroke: "#8885", width: 0.5}, axis = {stroke: "#808894", grid, ticks: {...grid, size: 4}, font: "11px system-ui, sans-serif"};
    const joined = tables.length ? uPlot.join(tables) : [[]], from = joined[0].length ? joined[0][0] : 0, to = joined[0].at(-1);
    const last = series.length - 1;
    built.get(figure)?.destroy();
    const plot = new uPlot({
      width: figure.clientWidth, height: 200, series, ms: 1,
      scales: {x: {time: false, range: (chart, least, most) => least === most ? [least - 1, most + 1] : [least, most]}, ...(stacked && {y: {range: (chart, least, most) => [0, most * 1.05]}})},
      axes: [{...axis, size: 30, values: (chart, marks) => marks.map(byTime ? time : each => Number.isInteger(each) ? number(each) : ""), ...(byTime && {incrs: [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800]})},
        {...axis, size: 52, values: (chart, marks) => marks.map(number)}],
      bands: spread && lines.length === 3 ? [{series: [last, last - 1], fill: `${colour(0)}18`}] : [],
      cursor: {sync: {key: "page", setSeries: false}, drag: {x: true, y: false}, points: {size: 6}},
      legend: {markers: {width: 2}},
      hooks: {setScale: [(chart, key) => key === "x" && chart.ready_ && zoom(chart, chart.scales.x.min, chart.scales.x.max)]},
    }, joined, figure);
    // Of smoothed curves, the legend has no row.
    if (weight) lines.forEach((line, at) => plot.root.querySelectorAll(".u-series")[at + 1].hidden = true);
    if (range && to > from) plot.setScale("x", {min: range[0], max: range[1]});
    plot.setLegend({idx: null}, false);
    setTimeout(() => plot.ready_ = true);
    built.set(figure, plot);
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const near = new IntersectionObserver(entries => entries.forEach(({target, isIntersecting}) => {
    wanted[isIntersecting ? "add" : "delete"](target);
    if (isIntersecting && !built.has(target)) build(target);
  }), {rootMargin: "400px"});
  const widths = new ResizeObserver(entries => entries.forEach(({target}) => target.clientWidth && built.get(target)?.setSize({width: target.clientWidth, height: 200})));
  figures.forEach(figure => { near.observe(figure); widths.observe(figure); });
  const rebuild = () => {
    // Those out of sight are built when they are seen again.
    for (const [figure, plot] of built) if (!wanted.has(figure)) { plot.destroy(); built.delete(figure); }
    wanted.forEach(build);
  };
  tools.hidden = !figures.length;
  tools.addEventListener("submit", event => event.preventDefault());
  tools.addEventListener("input", event => {
    document.getElementById("smoothed").textContent = (+smoothing.value).toFixed(2).replace(/\.?0+$/, "") || "0";
    if (event.target.name === "axis") { byTime = event.target.value === "time"; range = null; }
    rebuild();
  });
  addEventListener("beforeprint", () => figures.forEach(figure => figure.clientWidth && !built.has(figure) && build(figure)));
})();
