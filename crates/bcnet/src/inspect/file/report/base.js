'use strict';
// All sections of the page show one view: peer, kind, fault and time range. Text from the network becomes text nodes
// and nothing else.

const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);
const END = Math.max(data.span, 1);
const view = { peer: '', kind: '', fault: '', from: 0, to: END };
const SIDES = ['client', 'host'];

/** Makes an element. Children that are not elements become text. */
function make(tag, attributes, ...children) {
  const svg = make.svg.has(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== null));
  return element;
}
make.svg = new Set(['svg', 'g', 'path', 'line', 'rect', 'text', 'circle']);

const count = number => number.toLocaleString('en');
const percent = (part, whole) => whole ? (100 * part / whole).toFixed(1) + ' %' : '–';

/** Formats microseconds as `12.345 s` or `1:05.120`, with this many decimals. */
function clock(micros, digits = 3) {
  const seconds = micros / 1e6;
  if (END < 6e7) return seconds.toFixed(digits) + ' s';
  const scale = 10 ** digits, rounded = Math.round(seconds * scale) / scale;
  const whole = Math.floor(rounded), pad = number => String(number).padStart(2, '0');
  const rest = digits ? (rounded - whole).toFixed(digits).slice(1) : '';
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return (hours ? hours + ':' + pad(minutes) : minutes) + ':' + pad(whole % 60) + rest;
}

/** Returns the time of day in UTC, by the clock of the capture. */
const timeOfDay = micros => new Date((data.start + micros) / 1e3).toISOString().slice(11, 23);

/** Returns the smallest round step (1, 2, 5 times a power of ten, or whole minutes and hours) with few enough ticks. */
function roundStep(span, ticks, time) {
  const rough = span / ticks;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough * 0.999);
  if (!time || rough <= 20) return step;
  return [30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400].find(step => step >= rough) || Math.ceil(rough / 86400) * 86400;
}

const labels = data.talks.map(talk => `${talk.who[0]} ${talk.address[0]} ${talk.who[1]} ${talk.address[1]}`.toLowerCase());
/** Returns the name of a side of a conversation. */
function who(talk, side) {
  const { who, address } = data.talks[talk];
  return `${who[side]} ${address[side]}`;
}

/** Returns the value of the first field of this name, or undefined. */
const fieldNamed = (fields, name) => fields.find(field => data.fields[field[2]][0] === name)?.[3];
const datagrams = new Map(data.datagrams.map(datagram => [datagram.n, datagram]));
for (const datagram of data.datagrams) {
  datagram.kinds = new Set();
  for (const [, , kind, , fields] of datagram.messages) {
    datagram.kinds.add(kind);
    const opcode = fieldNamed(fields, 'opcode');
    if (opcode) datagram.kinds.add(opcode);
  }
}

let wanted = labels.map(() => true);
const isWantedTalk = talk => talk === null ? view.peer === '' : wanted[talk];
const isWantedTime = at => at >= view.from && at <= view.to;
const isWantedFault = kind => view.fault === '' || (view.fault === 'any' ? data.kinds[kind].weight > 0 : kind === +view.fault);
const isWantedFinding = finding => isWantedTalk(finding.talk) && isWantedTime(finding.at) && isWantedFault(finding.kind)
  && (view.kind === '' || finding.about.some(number => datagrams.get(number)?.kinds.has(view.kind)));
const isWantedDatagram = datagram => isWantedTalk(datagram.talk) && isWantedTime(datagram.at)
  && (view.kind === '' || datagram.kinds.has(view.kind))
  && (view.fault === '' || (datagram.found || []).some(([kind]) => isWantedFault(kind)));

/** Returns the only selected conversation, or undefined. */
function onlyTalk() {
  const first = wanted.indexOf(true);
  return first >= 0 && wanted.indexOf(true, first + 1) < 0 ? first : undefined;
}
/** Returns the data of plots and tables: of one conversation if it has its own plots, else of all. */
function detail() {
  const talk = onlyTalk(), own = talk === undefined ? undefined : data.talks[talk].detail;
  if (own) return { ...own, name: `of ${who(talk, 0)}` };
  const most = 'queues and round trips show the maximum of any conversation';
  const why = view.peer === '' ? '' : talk === undefined ? ', not only the selected ones' : ', because the selected one has no plots';
  const name = data.talks.length > 1 ? `of all conversations${why}; ${most}` : '';
  return { ...data.all, name };
}

const drawers = [];
let drawing = false;
/** Changes the view and redraws everything. */
function show(changes) {
  Object.assign(view, changes);
  const width = Math.min(Math.max(view.to - view.from, Math.min(1000, END)), END);
  view.from = Math.min(Math.max(view.from, 0), END - width);
  view.to = view.from + width;
  if ('peer' in changes) {
    const peer = view.peer.trim().toLowerCase();
    wanted = labels.map(label => label.includes(peer));
  }
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => drawing && draw());
}
function draw() {
  drawing = false;
  for (const name of ['peer', 'kind', 'fault']) byId(name).value = view[name];
  byId('from').value = +(view.from / 1e6).toFixed(3);
  byId('to').value = +(view.to / 1e6).toFixed(3);
  for (const which of document.querySelectorAll('.which')) which.textContent = detail().name;
  drawers.forEach(draw => draw());
  remember();
}

/** Writes the view into the URL, so that it can be bookmarked and shared. */
function remember(packet) {
  const parts = new URLSearchParams();
  for (const name of ['peer', 'kind', 'fault']) if (view[name] !== '') parts.set(name, view[name]);
  if (view.from > 0 || view.to < END) ['from', 'to'].forEach(name => parts.set(name, +(view[name] / 1e6).toFixed(6)));
  if (packet) parts.set('packet', packet);
  const hash = parts.toString();
  history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search);
}
function recall() {
  const parts = new URLSearchParams(location.hash.slice(1)), changes = {};
  for (const name of ['peer', 'kind', 'fault']) if (parts.has(name)) changes[name] = parts.get(name);
  for (const name of ['from', 'to']) if (isFinite(parseFloat(parts.get(name)))) changes[name] = parseFloat(parts.get(name)) * 1e6;
  show(changes);
  if (parts.has('packet')) openDatagram(+parts.get('packet'));
}

/** Zooms by a factor around a time. */
function zoom(factor, around = (view.from + view.to) / 2) {
  show({ from: around - (around - view.from) * factor, to: around + (view.to - around) * factor });
}
/** Moves by a share of the visible time range. */
function move(share) {
  const by = (view.to - view.from) * share;
  const kept = Math.min(Math.max(by, -view.from), END - view.to);
  show({ from: view.from + kept, to: view.to + kept });
}
const showAll = () => show({ from: 0, to: END });
