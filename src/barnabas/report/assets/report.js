'use strict';
// The script of the report: draws the charts over time with uPlot, and makes tables sortable and commands copyable.
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const color = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

// The same forms as barnabas.report.chart.Unit.
const short = value => String(Number(value.toPrecision(3)));
const sized = value => {
  let power = 0;
  for (; Math.abs(value) >= 1000 && power < 5; power++) value /= 1000;
  return short(value) + ' ' + ['B', 'kB', 'MB', 'GB', 'TB', 'PB'][power];
};
const UNITS = {
  'B/s': value => sized(value) + '/s',
  s: value => Math.abs(value) < 1 ? short(value * 1000) + ' ms' : short(value) + ' s',
  '%': value => short(value * 100) + ' %',
  '': value => Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : short(value),
};
const written = (unit, value) => value ? UNITS[unit](value) : '0';
const utc = (seconds, from, to) => new Date(seconds * 1000).toISOString().slice(from, to);
const tick = (seconds, increment) =>
  increment >= 86400 || (increment >= 60 && seconds % 86400 === 0) ? utc(seconds, 5, 10)
    : utc(seconds, 11, increment >= 60 ? 16 : 19);

// One box beside the pointer, for all charts.
const tip = make('div', {id: 'tip', hidden: true});
tip.setAttribute('role', 'status');
document.body.append(tip);
const showTip = (x, y, ...children) => {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  tip.style.left = Math.max(4, Math.min(left, innerWidth - box.width - 4)) + 'px';
  tip.style.top = Math.max(4, Math.min(y + 10, innerHeight - box.height - 4)) + 'px';
};
const hideTip = () => { tip.hidden = true; };
for (const mark of all('[data-tip]')) {
  mark.onpointermove = mark.onpointerdown = event => showTip(event.clientX, event.clientY, mark.dataset.tip);
  mark.onpointerleave = hideTip;
}

// The values that uPlot draws. Stacked series become sums from the bottom, the first on top: drawn in this order, each
// covers the lower part of the one before it.
const drawn = (panel, hidden) => {
  let rows = panel.lines.map(line => line.values);
  if (panel.shape !== 'line') {
    let below = panel.times.map(() => 0);
    rows = panel.lines.map(line => line.values).reverse().map((values, place) => {
      const line = panel.lines[panel.lines.length - 1 - place];
      if (!hidden.has(line.name)) below = below.map((sum, step) => sum + (values[step] ?? 0));
      return below;
    }).reverse();
  }
  if (panel.limit !== null) rows = [...rows, panel.times.map(() => panel.limit)];
  return [panel.times, ...rows];
};

const plotHeight = width => width < 480 ? 170 : 200;
const options = (panel, chart, width) => {
  const stacked = panel.shape !== 'line';
  const axis = {
    stroke: () => color('muted'), font: '12px ' + color('font'),
    grid: {stroke: () => color('line'), width: 1}, ticks: {stroke: () => color('line'), width: 1, size: 4},
  };
  const series = panel.lines.map(line => ({
    label: line.name, stroke: () => color(line.color), width: stacked ? 0 : 1.8, spanGaps: true,
    fill: stacked ? () => color(line.color) : undefined,
    paths: panel.shape === 'columns' ? uPlot.paths.bars({size: [0.86, 60]}) : undefined,
    points: {show: !stacked || panel.times.length === 1, size: 5, fill: () => color(line.color)},
  }));
  if (panel.limit !== null)
    series.push({label: 'limit', stroke: () => color('alarm'), width: 1.3, dash: [6, 4], points: {show: false}});
  return {
    width, height: plotHeight(width), legend: {show: false}, padding: [8, 28, 0, 0],  // half a label of the time axis
    tzDate: seconds => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: {sync: {key: chart.name}, points: {size: 7}, y: false},
    scales: {
      x: {range: (plot, low, high) => low === high ? [low - 1, high + 1] : [low, high]},
      y: {range: (plot, low, high) => [0, Math.max(high ?? 0, panel.limit ?? 0) * 1.1 || 1]},
    },
    axes: [
      {...axis, size: 30, space: 76, values: (plot, splits, place, space, increment) =>
        splits.map(split => tick(split, increment))},
      {...axis, size: 66, space: 36, values: (plot, splits) => splits.map(split => written(panel.unit, split))},
    ],
    series: [{}, ...series],
  };
};

const plots = [];
const drawChart = figure => {
  const chart = JSON.parse(figure.querySelector('script').textContent);
  const hidden = new Set();
  const own = [];
  const legend = make('div', {className: 'legend'});
  const colors = new Map(chart.panels.flatMap(panel => panel.lines.map(line => [line.name, line.color])));
  for (const [name, shade] of colors) {
    const swatch = make('i');
    swatch.style.background = `var(--${shade})`;
    const button = make('button', {type: 'button', title: 'hide or show'}, swatch, name);
    button.setAttribute('aria-pressed', 'true');
    button.onclick = () => {
      const hides = !hidden.delete(name);
      if (hides) hidden.add(name);
      button.setAttribute('aria-pressed', String(!hides));
      for (const {plot, panel} of own) {
        const place = panel.lines.findIndex(line => line.name === name);
        if (place >= 0) plot.setSeries(place + 1, {show: !hides});
        plot.setData(drawn(panel, hidden));
      }
    };
    legend.append(button);
  }
  figure.append(legend);
  for (const panel of chart.panels) {
    const holder = make('div', {className: 'plot', tabIndex: 0});
    holder.setAttribute('role', 'img');
    holder.setAttribute('aria-label', `${panel.title}. ${chart.alt}. The arrow keys move along the time axis.`);
    figure.append(make('h4', {textContent: panel.title}), holder);
    const plot = new uPlot(options(panel, chart, holder.clientWidth), drawn(panel, hidden), holder);
    const tell = (x, y) => {
      const step = plot.cursor.idx;
      if (step === null || step === undefined) return hideTip();
      const rows = panel.lines
        .filter(line => !hidden.has(line.name) && line.values[step] !== null && line.values[step] !== undefined)
        .map(line => {
          const swatch = make('i');
          swatch.style.background = `var(--${line.color})`;
          return make('div', {}, swatch, make('span', {textContent: line.name}),
            make('b', {textContent: written(panel.unit, line.values[step])}));
        });
      showTip(x, y, make('div', {textContent: utc(panel.times[step], 0, 19).replace('T', ' ') + ' UTC'}), ...rows);
    };
    plot.over.addEventListener('pointermove', event => {
      // uPlot itself follows a mouse, but no finger.
      if (event.pointerType !== 'mouse') {
        const box = plot.over.getBoundingClientRect();
        plot.setCursor({left: event.clientX - box.left, top: event.clientY - box.top});
      }
      tell(event.clientX, event.clientY);
    });
    plot.over.addEventListener('pointerleave', hideTip);
    holder.onblur = hideTip;
    holder.onkeydown = event => {
      const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!move) return;
      event.preventDefault();
      const step = Math.max(0, Math.min((plot.cursor.idx ?? -1) + move, panel.times.length - 1));
      const left = plot.valToPos(panel.times[step], 'x');
      plot.setCursor({left, top: 10});
      const box = plot.over.getBoundingClientRect();
      tell(box.left + left, box.top + 10);
    };
    own.push({plot, panel});
    plots.push({plot, holder});
  }
};
const fit = width => {
  for (const {plot, holder} of plots) {
    const wanted = width ?? holder.clientWidth;
    if (wanted && wanted !== plot.width) plot.setSize({width: wanted, height: plotHeight(wanted)});
    else plot.redraw();
  }
};
for (const figure of all('figure.times')) drawChart(figure);
addEventListener('resize', () => fit());
matchMedia('(prefers-color-scheme:dark)').addEventListener('change', () => fit());
// Paper is light, and 680 pixels wide.
addEventListener('beforeprint', () => { document.documentElement.dataset.theme = 'light'; fit(680); });
addEventListener('afterprint', () => { delete document.documentElement.dataset.theme; fit(); });

// Tables: a sign where there is more to the right, all rows, and sorting.
const markCut = box => box.classList.toggle('cut', box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
for (const box of all('.scroll')) {
  markCut(box);
  box.addEventListener('scroll', () => markCut(box), {passive: true});
}
addEventListener('resize', () => all('.scroll').forEach(markCut));
for (const more of all('.more')) more.onclick = () => {
  more.previousElementSibling.querySelector('table').classList.remove('few');
  more.remove();
};
for (const button of all('th button')) button.onclick = () => {
  const head = button.parentNode, place = head.cellIndex, isNumber = head.classList.contains('n');
  const body = head.closest('table').tBodies[0];
  const before = head.getAttribute('aria-sort');
  const down = isNumber ? before !== 'descending' : before === 'ascending';
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = row => row.cells[place].dataset.v ?? row.cells[place].textContent;
  const compare = (a, b) => isNumber ? key(a) - key(b) : key(a).localeCompare(key(b));
  body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a, b)));
};

for (const button of all('.command button')) button.onclick = async () => {
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = 'copied';
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = 'selected';
  }
};
