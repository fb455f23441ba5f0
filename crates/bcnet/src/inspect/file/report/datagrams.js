// Datagrams with their bytes, and the sequence diagram.

const ends = datagram => datagram.talk === null ? datagram.ends : [who(datagram.talk, datagram.side), who(datagram.talk, 1 - datagram.side)];
const faultsOf = datagram => (datagram.found || []).map(([kind, times, text]) => times > 1 ? `${count(times)} ${data.kinds[kind].title}` : text);

/** Shortens ACKs, with consecutive numbers grouped: `c0 g3-5 g7.0-2`. */
function runs(acks) {
  const ids = acks.map(text => /(control|game) seq=(\d+)(?: part=(\d+))?/.exec(text)).filter(Boolean);
  const places = ids.map(([, channel, seq, part]) => ({ head: channel[0] + (part === undefined ? '' : seq + '.'), last: +(part ?? seq) }));
  const ranges = [];
  for (const { head, last } of places) {
    const run = ranges[ranges.length - 1];
    if (run && run.head === head && last === run.last + 1) run.last = last;
    else ranges.push({ head, first: last, last });
  }
  return ranges.map(({ head, first, last }) => head + first + (last > first ? '-' + last : '')).join(' ');
}

/** Returns a short description of a datagram, with all ACKs together. */
function brief(datagram) {
  const acks = datagram.messages.filter(([, , kind]) => kind === 'ack').map(message => message[3]);
  const rest = datagram.messages.filter(([, , kind]) => kind !== 'ack').map(([, , kind, text, fields]) => {
    if (kind !== 'data') return text.split(':')[0];
    const [seq, part] = [fieldNamed(fields, 'sequence'), fieldNamed(fields, 'part')];
    const id = seq === undefined ? '' : ` g${seq}${part === undefined ? '' : '.' + part}`;
    return (fieldNamed(fields, 'opcode')?.slice(5) ?? 'data') + id;
  });
  return [...(acks.length ? ['ACK ' + runs(acks)] : []), ...rest].join(' · ');
}

const fillDatagrams = list('#datagrams', [
  { name: 'packet', number: true, value: datagram => datagram.n, show: datagram => packetLink(datagram.n) },
  { name: 'time', number: true, value: datagram => datagram.at, show: datagram => clock(datagram.at, 6) },
  { name: 'from', value: datagram => ends(datagram)[0] },
  { name: 'to', class: 'wide', value: datagram => ends(datagram)[1] },
  { name: 'bytes', number: true, value: datagram => datagram.len },
  { name: 'content', value: datagram => brief(datagram) },
  { name: 'findings', value: datagram => -(datagram.found || []).length, show: datagram => (datagram.found || []).map(([kind, times]) => make('div', {}, severity(kind), times > 1 ? ` ×${count(times)}` : '')) },
], { sort: [0, false], open: datagram => openDatagram(datagram.n), empty: 'No datagrams match the filter.' });
drawers.push(() => fillDatagrams(data.datagrams.filter(isWantedDatagram)));

/** Draws a sequence diagram. Where datagrams are missing in the page, it shows their number. */
function ladder(rungs, chosen) {
  const WIDTH = Math.min(Math.max(document.querySelector('main').clientWidth - 64, 260), 900), SMALL = WIDTH < 500;
  const EDGE = SMALL ? 58 : 120, ROW = 30;
  const [left, right] = [EDGE, WIDTH - EDGE], rows = [];
  let y = 44, before;
  for (const rung of rungs) {
    const missing = before && rung.place && before.place ? rung.place - before.place - 1 : 0;
    if (missing > 0) {
      rows.push(make('text', { x: WIDTH / 2, y: y + 4, 'text-anchor': 'middle', class: 'gap' }, `⋮ ${count(missing)} datagram${missing > 1 ? 's' : ''} not in this page`));
      y += 22;
    }
    const [from, to] = rung.side === 0 ? [left, right] : [right, left], tip = rung.side === 0 ? -7 : 7;
    const faults = (rung.found || []).map(([kind]) => kind), worst = faults.length ? faults.reduce((a, b) => grade(b) > grade(a) ? b : a) : null;
    const room = Math.floor((right - left) / 6.4), words = brief(rung);
    const text = words.length > room ? words.slice(0, room - 1) + '…' : words;
    const open = () => openDatagram(rung.n);
    rows.push(make('g', { class: `rung side${rung.side}${rung === chosen ? ' chosen' : ''}`, tabindex: 0, role: 'link', 'aria-label': `packet ${rung.n}, ${clock(rung.at)}, ${words}. ${faultsOf(rung).join('. ')}`,
      click: open, keydown: event => { if (event.key === 'Enter') open(); } },
      make('rect', { x: 0, y: y - 16, width: WIDTH, height: ROW, class: 'back' }),
      make('line', { x1: from, x2: to, y1: y + 4, y2: y + 4 }), make('path', { d: `M${to} ${y + 4}l${tip} -4v8z` }),
      make('text', { x: WIDTH / 2, y: y - 2, 'text-anchor': 'middle' }, text),
      make('text', { x: EDGE - 8, y: y + 8, 'text-anchor': 'end', class: 'when' }, clock(rung.at, SMALL ? 2 : 3)),
      make('text', { x: WIDTH - EDGE + 8, y: y + 8, class: 'when' }, String(rung.n)),
      worst === null ? null : make('text', { x: WIDTH - 14, y: y + 8, 'text-anchor': 'end', class: `grade${grade(worst)}` }, MARKS[grade(worst)])));
    y += ROW;
    before = rung;
  }
  const sides = rungs.length && rungs[0].talk !== null ? [0, 1].map(side => SMALL ? data.talks[rungs[0].talk].who[side] : who(rungs[0].talk, side)) : SIDES;
  return make('svg', { width: WIDTH, height: y, viewBox: `0 0 ${WIDTH} ${y}`, class: 'ladder', role: 'group', 'aria-label': 'Sequence of datagrams' },
    make('text', { x: 4, y: 14, class: 'side0' }, sides[0]), make('text', { x: WIDTH - 4, y: 14, 'text-anchor': 'end', class: 'side1' }, sides[1]),
    make('line', { x1: left, x2: left, y1: 22, y2: y - 8, class: 'life' }), make('line', { x1: right, x2: right, y1: 22, y2: y - 8, class: 'life' }), rows);
}
let rungs = 60;
drawers.push(() => {
  const section = byId('ladder'), own = data.datagrams.filter(isWantedDatagram);
  const talk = onlyTalk() ?? own.find(datagram => datagram.talk !== null)?.talk;
  const all = own.filter(datagram => datagram.talk === talk), some = all.slice(0, rungs);
  section.querySelector('.which').textContent = some.length ? `of ${who(talk, 0)}` : '';
  section.querySelector('p').textContent = some.length ? `The first ${count(some.length)} of the ${count(all.length)} datagrams in this page that match the filter. Select a peer and a time for others. Click an arrow to see its datagram.` : 'No datagrams in this page match the filter.';
  const more = make('button', { type: 'button', class: 'more', click: () => { rungs *= 4; show({}); } }, `${count(all.length - some.length)} more`);
  section.querySelector('.list').replaceChildren(...(some.length ? [make('div', { class: 'scroll' }, ladder(some))] : []), ...(all.length > some.length ? [more] : []));
});

/** Shows the bytes, sixteen to a line, each with its offset. */
function hexDump(hex) {
  const bytes = hex.match(/../g) || [], dump = make('pre', { class: 'hex', tabindex: 0, 'aria-label': 'bytes' });
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.slice(at, at + 16);
    const letters = row.map(byte => { const code = parseInt(byte, 16); return code > 32 && code < 127 ? String.fromCharCode(code) : '.'; }).join('');
    dump.append(at.toString(16).padStart(4, '0') + '  ', ...row.flatMap((byte, place) => [make('span', { 'data-at': at + place }, byte), ' ']),
      '   '.repeat(16 - row.length) + ' ' + letters + '\n');
  }
  return dump;
}

function fieldsOf([at, length, kind, text, fields], light) {
  const lit = (at, length) => ({ pointerenter: () => light(at, length), focus: () => light(at, length), pointerleave: () => light(0, 0), blur: () => light(0, 0) });
  const rows = fields.map(([at, length, field, value]) => make('tr', { tabindex: 0, ...lit(at, length) }, make('td', { class: 'number' }, `${at} +${length}`),
    make('td', {}, data.fields[field][0]), make('td', {}, value), make('td', { class: 'quiet' }, data.fields[field][1])));
  const head = make('thead', {}, make('tr', {}, ['byte', 'field', 'value', 'rule'].map(name => make('th', { scope: 'col' }, name))));
  return make('details', { open: true }, make('summary', lit(at, length), make('code', {}, text)), fields.length ? make('table', { class: 'fields' }, head, make('tbody', {}, rows)) : null);
}

/** Opens a datagram, with the other datagrams of the same finding. */
function openDatagram(number, finding) {
  const dialog = byId('datagram'), datagram = datagrams.get(number);
  const close = make('button', { type: 'button', class: 'close', click: () => dialog.close(), 'aria-label': 'close' }, '×');
  const content = [close, make('h2', { id: 'datagram-title' }, Number.isFinite(number) ? `Packet ${number}` : 'No packet')];
  finding ??= data.findings.find(finding => finding.packet === number);
  if (finding) {
    content.push(make('p', {}, severity(finding.kind), ': ', finding.text, finding.talk === null ? '' : ` (by ${who(finding.talk, finding.side)})`));
    const about = finding.about.map(other => datagrams.get(other)).filter(Boolean);
    if (about.length > 1) content.push(make('div', { class: 'scroll' }, ladderOf(about, datagram, finding)));
    const missing = finding.left_out + finding.about.length - about.length;
    if (missing) content.push(make('p', { class: 'quiet' }, `${count(missing)} more datagrams of this finding are not in this page.`));
  }
  if (datagram) {
    const hex = hexDump(datagram.hex);
    const light = (at, length) => hex.querySelectorAll('span').forEach(byte => byte.classList.toggle('lit', +byte.dataset.at >= at && +byte.dataset.at < at + length));
    const others = faultsOf(datagram);
    content.push(make('p', {}, `${clock(datagram.at, 6)} (${timeOfDay(datagram.at)} UTC), ${ends(datagram).join(' → ')}, ${count(datagram.len)} bytes`),
      ...(datagram.comment ? [make('p', { class: 'quiet' }, datagram.comment)] : []),
      ...(others.length ? [make('ul', { class: 'found' }, others.map(text => make('li', {}, text)))] : []), hex,
      ...(datagram.joined || []).map(text => make('p', {}, make('code', {}, 'reassembled ' + text))), ...datagram.messages.map(message => fieldsOf(message, light)));
    content.push(make('p', { class: 'buttons' }, neighbour(datagram, -1), neighbour(datagram, 1)));
  } else {
    content.push(make('p', {}, 'This page does not contain the datagram. ', make('code', {}, `bcnet inspect FILE --packet ${number} --explain`), ' shows it.'));
  }
  dialog.replaceChildren(make('div', { class: 'inside' }, content));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  remember(number);
}
/** Draws the diagram of a finding. Its arrows open datagrams within the same finding. */
function ladderOf(about, chosen, finding) {
  const drawn = ladder(about, chosen);
  [...drawn.querySelectorAll('.rung')].forEach((rung, place) => rung.addEventListener('click', event => { event.stopImmediatePropagation(); openDatagram(about[place].n, finding); }, true));
  return drawn;
}
const openFinding = finding => openDatagram(finding.packet ?? finding.about[finding.about.length - 1] ?? NaN, finding);
function neighbour(datagram, step) {
  const own = data.datagrams.filter(other => other.talk === datagram.talk), other = own[own.indexOf(datagram) + step];
  return make('button', { type: 'button', disabled: !other, click: () => openDatagram(other.n) }, step < 0 ? '◀ previous in this page' : 'next in this page ▶');
}
byId('datagram').addEventListener('close', () => remember());
byId('datagram').addEventListener('click', event => { if (event.target === event.currentTarget) event.currentTarget.close(); });

// The filter controls.
const option = (value, text) => make('option', { value }, text);
byId('peers').append(...data.talks.slice(0, 200).map(talk => option(talk.address[0], talk.who[0])));
const kinds = [...new Set(data.datagrams.flatMap(datagram => [...datagram.kinds]))].sort();
byId('kind').append(...kinds.filter(kind => !kind.startsWith('0x')).map(kind => option(kind, kind)),
  make('optgroup', { label: 'opcodes' }, kinds.filter(kind => kind.startsWith('0x')).map(kind => option(kind, kind))));
byId('fault').append(option('any', 'any fault'), ...data.kinds.map((kind, place) => option(String(place), kind.title)));
for (const name of ['kind', 'fault']) byId(name).addEventListener('change', event => show({ [name]: event.target.value }));
byId('peer').addEventListener('input', event => show({ peer: event.target.value }));
for (const name of ['from', 'to']) byId(name).addEventListener('change', event => { const seconds = parseFloat(event.target.value); show(isFinite(seconds) ? { [name]: seconds * 1e6 } : {}); });
byId('filter').addEventListener('submit', event => event.preventDefault());
byId('filter').addEventListener('reset', event => { event.preventDefault(); show({ peer: '', kind: '', fault: '', from: 0, to: END }); });
byId('earlier').addEventListener('click', () => move(-0.5));
byId('later').addEventListener('click', () => move(0.5));
byId('closer').addEventListener('click', () => zoom(0.5));
byId('wider').addEventListener('click', () => zoom(2));
addEventListener('hashchange', recall);
addEventListener('resize', () => show({}));
addEventListener('beforeprint', () => { draw(); });
recall();
draw();
document.documentElement.dataset.ready = Math.round(performance.now());
