// Plots over time: all share the time range, the cursor and the pointer and key handling.

const HEIGHT = 190, LEFT = 52, RIGHT = 8, TOP = 14, BOTTOM = 24;
const line = (side, key, name, factor = 1, pale = false) => ({ side, key, name, factor, pale });
const both = (key, factor) => [line(0, key, 'client', factor), line(1, key, 'host', factor)];
const PLOTS = [
  { title: 'ACKs in the outbox', note: 'ACKs that each side keeps repeating. The stock game sends each up to nine times.', lines: both('owed') },
  { title: 'Messages waiting for an ACK', note: 'Short peaks are normal. A line that stays high means that messages do not get through.', lines: both('waiting') },
  { title: 'Bytes per second', note: 'Dashed lines: the share of ACKs.', perSecond: true,
    lines: [...both('bytes'), line(0, 'acks', 'client, ACKs', 1, true), line(1, 'acks', 'host, ACKs', 1, true)] },
  { title: 'Retransmitted messages', note: 'For each, the message or its ACK was lost or late.', lines: both('again') },
  { title: 'Round trip in ms', note: 'From a message to its ACK, as seen where the capture was taken.', lines: both('trip', 1e-3) },
  { title: 'Largest datagram in %', note: 'In percent of the limit of 512 bytes. At 100 % messages wait for the next datagram.', lines: both('fullest', 1 / 5.12) },
];
const MARKS = ['○', '●', '◆', '▲'];
/** Returns the severity of a kind, from 0 to 3. */
const grade = kind => { const { weight } = data.kinds[kind]; return weight === 0 ? 0 : weight < 4 ? 1 : weight < 7 ? 2 : 3; };

const plots = [];
let cursor = null;

/** Converts times to horizontal positions in a plot, and back. */
const scale = width => ({
  x: at => LEFT + (at - view.from) / (view.to - view.from) * (width - LEFT - RIGHT),
  at: x => view.from + (x - LEFT) / (width - LEFT - RIGHT) * (view.to - view.from),
});

function timeAxis(width, height) {
  const span = (view.to - view.from) / 1e6, { x } = scale(width);
  const step = roundStep(span, Math.max(2, Math.floor((width - LEFT) / 80)), true);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const group = make('g', { class: 'axis' });
  for (let tick = Math.ceil(view.from / 1e6 / step); tick * step * 1e6 <= view.to; tick++) {
    const at = x(tick * step * 1e6);
    group.append(make('line', { x1: at, x2: at, y1: TOP, y2: height - BOTTOM, class: 'grid' }));
    const anchor = at > width - 24 ? 'end' : 'middle';
    group.append(make('text', { x: at, y: height - 8, 'text-anchor': anchor }, clock(tick * step * 1e6, digits)));
  }
  return group;
}

/** Returns the visible steps of a line with their values. */
function stepsOf(own, { side, key, factor }, perSecond) {
  const values = own.sides[side][key], by = perSecond ? 1e6 / own.width : factor;
  const first = Math.max(0, Math.floor(view.from / own.width)), last = Math.min(values.length - 1, Math.floor(view.to / own.width));
  const shown = [];
  for (let step = first; step <= last; step++) shown.push([step, values[step] === null ? null : values[step] * by]);
  return shown;
}
const readable = value => value === null || value === undefined ? '–' : value >= 1e5 ? count(Math.round(value / 1e3)) + 'k'
  : value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : value.toFixed(1);

function drawPlot(plot) {
  const own = detail(), width = plot.width, { x } = scale(width);
  const lines = plot.lines.map(line => ({ ...line, shown: stepsOf(own, line, plot.perSecond) }));
  const most = lines.reduce((most, { shown }) => shown.reduce((most, [, value]) => Math.max(most, value || 0), most), 0);
  const unit = roundStep(Math.max(most, 4), 4), top = Math.max(1, Math.ceil(most / unit)) * unit;
  const y = value => HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP);
  const content = [timeAxis(width, HEIGHT)];
  for (let value = 0; value <= top * 1.001; value += unit) {
    content.push(make('line', { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: 'grid' }),
      make('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, readable(value)));
  }
  for (const { side, pale, shown } of [...lines].reverse()) {
    let path = '', down = false;
    for (const [step, value] of shown) {
      if (value === null) { down = false; continue; }
      const from = Math.max(x(step * own.width), LEFT), to = Math.min(x((step + 1) * own.width), width - RIGHT);
      path += `${down ? 'L' : 'M'}${from.toFixed(1)} ${y(value).toFixed(1)}H${to.toFixed(1)}`;
      down = true;
    }
    content.push(make('path', { d: path, class: `line side${side}${pale ? ' pale' : ''}` }));
  }
  plot.svg.replaceChildren(...content, plot.hair, plot.brush);
  plot.drawn = { own, y };
}

/** Draws the findings, a row for each kind. */
function drawMarks(plot) {
  const kinds = data.kinds.map((_, kind) => kind).filter(isWantedFault);
  const height = TOP + BOTTOM + 30 * Math.max(kinds.length, 1), { x } = scale(plot.width);
  plot.height = height;
  plot.svg.setAttribute('height', height);
  const content = [timeAxis(plot.width, height)];
  const rows = new Map(kinds.map((kind, row) => [kind, TOP + 10 + 30 * row]));
  for (const [kind, y] of rows) content.push(make('text', { x: LEFT + 3, y, class: 'row' }, data.kinds[kind].title));
  for (const finding of data.findings.filter(isWantedFinding)) {
    const mark = make('text', { x: x(finding.at), y: rows.get(finding.kind) + 15, 'text-anchor': 'middle', class: `mark grade${grade(finding.kind)}`,
      click: () => openFinding(finding) }, MARKS[grade(finding.kind)]);
    content.push(mark);
  }
  plot.svg.replaceChildren(...content, plot.hair, plot.brush);
}

/** Moves the cursor of all plots to a time and shows the values there. `null` removes the cursor. */
function point(at) {
  cursor = at === null ? null : Math.min(Math.max(at, view.from), view.to);
  for (const plot of plots) {
    plot.hair.replaceChildren();
    plot.legend.forEach(({ value }) => { value.textContent = ''; });
    plot.time.textContent = cursor === null ? '' : `${clock(cursor)} (${timeOfDay(cursor)})`;
    if (cursor === null) continue;
    const x = scale(plot.width).x(cursor);
    plot.hair.append(make('line', { x1: x, x2: x, y1: TOP, y2: plot.height - BOTTOM, class: 'hair' }));
    if (!plot.drawn) continue;
    const { own, y } = plot.drawn, step = Math.floor(cursor / own.width);
    plot.lines.forEach(({ side, key, factor }, place) => {
      const raw = own.sides[side][key][step];
      const value = raw === null || raw === undefined ? null : raw * (plot.perSecond ? 1e6 / own.width : factor);
      plot.legend[place].value.textContent = readable(value);
      if (value !== null) plot.hair.append(make('circle', { cx: x, cy: y(value), r: 3, class: `dot side${side}` }));
    });
  }
}

function addPointerAndKeys(plot) {
  const { svg } = plot, pointers = new Map();
  let start = null;
  const place = event => event.clientX - svg.getBoundingClientRect().left;
  const at = event => scale(plot.width).at(place(event));
  svg.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, event.clientX);
    start = { x: place(event), from: view.from, to: view.to, pan: event.pointerType === 'touch' || event.shiftKey };
    if (!event.target.classList.contains('mark')) svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointermove', event => {
    point(at(event));
    if (!pointers.has(event.pointerId) || !start) return;
    const per = (start.to - start.from) / (plot.width - LEFT - RIGHT);
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      const [was, is] = [Math.abs(pointers.get(event.pointerId) - other), Math.abs(event.clientX - other)];
      if (was > 10 && is > 10) zoom(was / is, at(event));
      pointers.set(event.pointerId, event.clientX);
      start = { ...start, from: view.from, to: view.to, x: place(event) };
    } else if (start.pan) {
      const by = Math.min(Math.max((start.x - place(event)) * per, -start.from), END - start.to);
      show({ from: start.from + by, to: start.to + by });
    } else {
      const [from, to] = [start.x, place(event)].sort((a, b) => a - b);
      plot.brush.setAttribute('x', from);
      plot.brush.setAttribute('width', to - from);
    }
  });
  const end = event => {
    if (event.type === 'pointerup' && start && !start.pan && Math.abs(place(event) - start.x) > 5) {
      const [from, to] = [scale(plot.width).at(start.x), at(event)].sort((a, b) => a - b);
      show({ from, to });
    }
    plot.brush.setAttribute('width', 0);
    pointers.delete(event.pointerId);
    start = null;
  };
  svg.addEventListener('pointerup', end);
  svg.addEventListener('pointercancel', end);
  svg.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse') point(null); });
  svg.addEventListener('dblclick', showAll);
  svg.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
  }, { passive: false });
  svg.addEventListener('keydown', event => {
    const width = detail().width, now = cursor === null ? (view.from + view.to) / 2 : cursor;
    const step = Math.max(width, (view.to - view.from) / 200);
    const keys = {
      ArrowLeft: () => event.shiftKey ? move(-0.25) : point(now - step), ArrowRight: () => event.shiftKey ? move(0.25) : point(now + step),
      '+': () => zoom(0.5, now), '=': () => zoom(0.5, now), '-': () => zoom(2, now), 0: showAll, Escape: () => point(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function addPlot(plot) {
  const label = `${plot.title}. ${plot.note}`;
  plot.height = HEIGHT;
  plot.svg = make('svg', { height: HEIGHT, tabindex: 0, role: 'img', 'aria-label': label });
  plot.hair = make('g', {});
  plot.brush = make('rect', { class: 'brush', y: TOP, height: HEIGHT - TOP - BOTTOM, width: 0 });
  plot.time = make('span', { class: 'time' });
  plot.legend = plot.lines.map(({ side, name, pale }) => {
    const value = make('b', { class: 'value' });
    const sample = make('svg', { width: 26, height: 8, 'aria-hidden': 'true' }, make('path', { d: 'M0 4H26', class: `line side${side}${pale ? ' pale' : ''}` }));
    return { value, element: make('span', { class: 'key' }, sample, ' ', name, ' ', value) };
  });
  const figure = make('figure', { class: plot.lines.length ? '' : 'whole' }, make('figcaption', {}, plot.title, plot.time), make('p', { class: 'quiet' }, plot.note),
    plot.svg, make('p', { class: 'legend' }, plot.legend.map(({ element }) => element)));
  document.querySelector('#over-time .plots').append(figure);
  plot.draw = plot.lines.length ? drawPlot : drawMarks;
  addPointerAndKeys(plot);
  plots.push(plot);
}

if (data.kinds.length) addPlot({ title: 'Findings', note: '▲ worst, ◆ bad, ● mild, ○ no fault. Click a mark to see its datagrams.', lines: [] });
PLOTS.forEach(addPlot);
drawers.push(() => {
  for (const plot of plots) {
    plot.width = Math.max(plot.svg.parentElement.clientWidth, 260);
    plot.svg.setAttribute('width', plot.width);
  }
  plots.forEach(plot => {
    plot.draw(plot);
    // In print the plots fill the width of the page.
    plot.svg.setAttribute('viewBox', `0 0 ${plot.width} ${plot.height}`);
  });
  point(cursor);
});
