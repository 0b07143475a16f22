"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tools = document.getElementById("tools"), smoothing = document.getElementById("smoothing");
  const axes = data.axes.map(differences => { let step = 0; return differences.map(each => step += each); });
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  // Charts, and the figures that are in sight: the others are built when they come there.
  const built = new Map(), seen = new Set(), times = new Map();
  // Which charts have the same axis, and what of it is shown.
  const kinds = new Map();
  let range = {}, isZooming = false, byTime = false;

  // Seconds at steps, between those that are known.
  const timesOf = ({job, axis}) => {
    const steps = axes[data.clocks[job].axis], seconds = data.clocks[job].values, key = `${job}:${axis}`;
    let at = 0;
    if (!times.has(key)) times.set(key, steps.length < 2 ? [] : axes[axis].map(step => {
      while (at < steps.length - 2 && steps[at + 1] < step) at++;
      return seconds[at] + (seconds[at + 1] - seconds[at]) * (step - steps[at]) / (steps[at + 1] - steps[at]);
    }));
    return times.get(key);
  };
  const placesOf = line => byTime && !line.timed ? timesOf(line) : axes[line.axis];
  const smooth = (values, weight) => {
    let mean = 0, sum = 0;
    return values.map(value => {
      if (value === null) return null;
      mean = mean * weight + value * (1 - weight);
      sum = sum * weight + 1 - weight;
      return mean / sum;
    });
  };
  const number = value => {
    const size = Math.abs(value);
    if (value == null) return "";
    if (size && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace(/\.?0+e/, "e");
    const [unit, name] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
    return `${+(value / unit).toPrecision(4)}${name}`;
  };
  const time = seconds => {
    const minutes = Math.floor(seconds / 60), pad = value => String(Math.floor(value)).padStart(2, "0");
    return `${minutes < 60 ? minutes : `${Math.floor(minutes / 60)}:${pad(minutes % 60)}`}:${pad(seconds % 60)}`;
  };

  function build(figure) {
    const isStack = figure.dataset.chart === "stack", weight = isStack ? 0 : +smoothing.value;
    const lines = (isStack ? [...data.stack].reverse() : data.charts[figure.dataset.chart]).filter(line => placesOf(line).length);
    const kind = lines.some(line => line.timed) ? "clock" : byTime ? "time" : "step", isTimed = kind !== "step";
    const isSpread = lines.map(line => line.label.split("/").at(-1)).join() === "mean,min,max";
    const colour = at => data.colours[(data.clocks.length > 1 ? lines[at].job : isSpread ? 0 : isStack ? lines.length - 1 - at : at) % data.colours.length];
    const tables = [], series = [{}];
    const add = (at, values, options) => {
      tables.push([placesOf(lines[at]), values]);
      const value = (chart, value, place, index) => number(index == null ? (options.raw ?? values).findLast(each => each !== null) : options.raw?.[index] ?? value);
      series.push({label: lines[at].label, stroke: colour(at), width: values.length > 400 ? 1 : 1.5, points: {size: 5, fill: colour(at)}, value, ...options});
    };
    // Smoothed curves are drawn over what they are made of.
    if (weight) lines.forEach((line, at) => add(at, line.values, {stroke: `${colour(at)}40`, width: 1, points: {show: false}}));
    if (isStack) lines.forEach((line, at) => add(at, line.values.map((_, place) => lines.slice(at).reduce((sum, part) => sum + part.values[place], 0)), {raw: line.values, fill: colour(at), width: 0, points: {show: false}}));
    else lines.forEach((line, at) => add(at, weight ? smooth(line.values, weight) : line.values, isSpread && at ? {stroke: `${colour(at)}70`, width: 1, points: {show: false}} : {}));
    const grid = {stroke: "#8885", width: 0.5}, axis = {stroke: "#808894", grid, ticks: {...grid, size: 4}, font: "11px system-ui, sans-serif"};
    const incrs = isTimed ? [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800, 2592000] : [1, 2, 5].flatMap(each => [...Array(17).keys()].map(size => each * 10 ** size)).sort((one, other) => one - other);
    built.get(figure)?.destroy();
    const chart = new uPlot({
      width: figure.clientWidth, height: 200, series,
      scales: {x: {time: false, range: (_, least, most) => least === most ? [least - 1, most + 1] : [least, most]}, ...(isStack && {y: {range: (_, least, most) => [0, most * 1.05]}})},
      axes: [{...axis, size: 30, incrs, values: (_, marks) => marks.map(isTimed ? time : number)}, {...axis, size: 52, values: (_, marks) => marks.map(number)}],
      bands: isSpread ? [{series: [series.length - 1, series.length - 2], fill: `${colour(0)}18`}] : [],
      cursor: {sync: {key: kind}, drag: {x: true, y: false}},
      hooks: {setScale: [(source, key) => {
        if (key !== "x" || isZooming || built.get(figure) !== source) return;
        isZooming = true;
        range[kind] = {min: source.scales.x.min, max: source.scales.x.max};
        built.forEach((other, figure) => other !== source && kinds.get(figure) === kind && other.setScale("x", range[kind]));
        isZooming = false;
      }]},
    }, tables.length ? uPlot.join(tables) : [[]], figure);
    if (weight) lines.forEach((_, at) => { chart.root.querySelectorAll(".u-series")[at + 1].hidden = true; });
    kinds.set(figure, kind);
    if (range[kind]) chart.setScale("x", range[kind]);
    // The first drawing is none that the reader has asked for.
    queueMicrotask(() => built.set(figure, chart));
  }

  const sight = new IntersectionObserver(entries => entries.forEach(({target, isIntersecting}) => {
    seen[isIntersecting ? "add" : "delete"](target);
    if (isIntersecting && !built.has(target)) build(target);
  }), {rootMargin: "400px"});
  const widths = new ResizeObserver(entries => entries.forEach(({target}) => target.clientWidth && built.get(target)?.setSize({width: target.clientWidth, height: 200})));
  figures.forEach(figure => { sight.observe(figure); widths.observe(figure); });
  tools.hidden = !figures.length;
  tools.addEventListener("input", ({target}) => {
    tools.querySelector("output").textContent = +(+smoothing.value).toFixed(2);
    if (target.name === "axis") { byTime = target.value === "time"; range = {}; }
    built.forEach((chart, figure) => { if (!seen.has(figure)) { chart.destroy(); built.delete(figure); } });
    seen.forEach(build);
  });
  const search = document.getElementById("search"), samples = [...document.querySelectorAll(".sample")];
  if (search) search.hidden = false;
  search?.addEventListener("input", () => samples.forEach(sample => {
    sample.hidden = !sample.textContent.toLowerCase().includes(search.value.toLowerCase());
  }));
  addEventListener("beforeprint", () => figures.forEach(figure => figure.checkVisibility() && !built.has(figure) && build(figure)));
})();
