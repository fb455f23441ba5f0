// Sortable lists and tables of counts.

const ROWS = 15;
const classOf = column => `${column.number ? 'number' : ''} ${column.class || ''}`;

/** Makes a sortable list. A column has a name, a value to sort by, and optionally a function that shows it. */
function list(place, columns, { sort, open, empty }) {
  let [by, down, rows, limit] = [...sort, [], ROWS];
  const body = make('tbody'), more = make('button', { type: 'button', class: 'more', click: () => { limit *= 4; fill(); } });
  const heads = columns.map((column, at) => make('th', { class: classOf(column), scope: 'col' },
    make('button', { type: 'button', click: () => { [by, down] = [at, by === at ? !down : Boolean(column.number)]; fill(); } }, column.name)));
  function fill() {
    const { value } = columns[by];
    const sorted = rows.map(row => [value(row), row]).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((head, at) => head.setAttribute('aria-sort', at !== by ? 'none' : down ? 'descending' : 'ascending'));
    body.replaceChildren(...sorted.slice(0, limit).map(([, row]) => {
      const cells = columns.map(column => make('td', { class: classOf(column) },
        (column.show || column.value)(row)));
      return make('tr', open ? { class: 'opens', click: event => { if (!event.target.closest('a')) open(row); } } : {}, cells);
    }));
    more.hidden = rows.length <= limit;
    more.textContent = `${count(rows.length - limit)} more`;
    table.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }
  const none = make('p', { class: 'quiet' }, empty || 'None.');
  const table = make('table', {}, make('thead', {}, make('tr', {}, heads)), body);
  document.querySelector(place + ' .list').append(make('div', { class: 'scroll' }, table), none, more);
  return now => { rows = now; fill(); };
}

const packetLink = number => number === null ? '–' : make('a', { href: '#packet=' + number }, String(number));
const severity = kind => make('span', { class: `grade${grade(kind)}` }, MARKS[grade(kind)] + ' ', data.kinds[kind].title);

const fillFindings = list('#findings', [
  { name: 'time', number: true, value: finding => finding.at, show: finding => clock(finding.at) },
  { name: 'packet', number: true, value: finding => finding.packet ?? Infinity, show: finding => findingLink(finding) },
  { name: 'by', value: finding => finding.talk === null ? '' : who(finding.talk, finding.side) },
  { name: 'finding', value: finding => finding.text },
  { name: 'kind', class: 'wide', value: finding => finding.kind, show: finding => severity(finding.kind) },
], { sort: [4, false], open: finding => openFinding(finding), empty: 'No findings match the filter.' });
function findingLink(finding) {
  const text = finding.packet === null ? 'none' : String(finding.packet);
  return make('a', { href: finding.packet === null ? '#findings' : '#packet=' + finding.packet, click: event => { event.preventDefault(); openFinding(finding); } }, text);
}
drawers.push(() => {
  const rows = data.findings.filter(isWantedFinding);
  fillFindings(rows);
  const shown = data.datagrams.filter(isWantedDatagram).length;
  byId('shown').textContent = `${count(rows.length)} findings, ${count(shown)} datagrams`;
});

const pair = show => talk => show(talk, 0) + ' / ' + show(talk, 1);
const sum = ([a, b]) => a + b;
const fillTalks = list('#conversations', [
  { name: 'player', class: 'name', value: talk => talk.who[0], show: talk => make('a', { href: '#peer=' + encodeURIComponent(talk.address[0]) }, talk.who[0]) },
  { name: 'address', value: talk => talk.address[0] },
  { name: 'faults', number: true, value: talk => talk.faults, show: talk => count(talk.faults) },
  ...(new Set(data.talks.map(talk => talk.address[1])).size > 1 ? [{ name: 'host', class: 'wide', value: talk => talk.address[1] }] : []),
  { name: 'from', number: true, value: talk => talk.from, show: talk => clock(talk.from, 1) },
  { name: 'duration', number: true, value: talk => talk.to - talk.from, show: talk => clock(talk.to - talk.from, 1) },
  { name: 'kB', number: true, value: talk => sum(talk.bytes), show: pair((talk, side) => (talk.bytes[side] / 1e3).toFixed(talk.bytes[side] < 1e4 ? 1 : 0)) },
  { name: 'datagrams', number: true, class: 'wide', value: talk => sum(talk.datagrams), show: talk => count(sum(talk.datagrams)) },
  { name: 'ACKs, %', number: true, value: talk => sum(talk.acks) / Math.max(sum(talk.bytes), 1), show: pair((talk, side) => (100 * talk.acks[side] / Math.max(talk.bytes[side], 1)).toFixed(1)) },
  { name: 'stale ACKs', number: true, class: 'wide', value: talk => sum(talk.stale), show: pair((talk, side) => count(talk.stale[side])) },
  { name: 'retransmitted', number: true, value: talk => sum(talk.again), show: pair((talk, side) => count(talk.again[side])) },
  { name: 'RTT, ms', number: true, value: talk => Math.max(...talk.trip), show: pair((talk, side) => talk.trip[side] === null ? '–' : (talk.trip[side] / 1e3).toFixed(0)) },
], { sort: [2, true], open: talk => show({ peer: view.peer === talk.address[0] ? '' : talk.address[0] }) });
drawers.push(() => fillTalks(data.talks.filter((talk, place) => wanted[place] && talk.to >= view.from && talk.from <= view.to)));

const fillOpcodes = list('#opcodes', [
  { name: 'opcode', value: ([opcode]) => opcode, show: ([opcode]) => '0x' + opcode.toString(16).toUpperCase().padStart(2, '0') },
  { name: 'name', value: ([, name]) => name },
  { name: 'client, messages', number: true, value: row => row[2][0], show: row => count(row[2][0]) },
  { name: 'client, bytes', number: true, value: row => row[3][0], show: row => count(row[3][0]) },
  { name: 'host, messages', number: true, value: row => row[2][1], show: row => count(row[2][1]) },
  { name: 'host, bytes', number: true, value: row => row[3][1], show: row => count(row[3][1]) },
  { name: 'share of game data', number: true, value: row => sum(row[3]), show: row => percent(sum(row[3]), row[4]) },
], { sort: [6, true], empty: 'No game data.' });
drawers.push(() => {
  const { opcodes } = detail(), all = opcodes.reduce((all, row) => all + sum(row[3]), 0);
  fillOpcodes(opcodes.map(row => [...row, all]));
});

drawers.push(() => {
  const { lives } = detail(), place = document.querySelector('#acks .list');
  const rows = lives[0].sends.map((_, sends) => [sends, lives[0].sends[sends], lives[1].sends[sends]]).filter(([, a, b]) => a + b > 0);
  const most = Math.max(1, ...rows.flatMap(([, a, b]) => [a, b]));
  const last = lives[0].sends.length - 1;
  const bar = (value, side) => make('td', { class: 'bar' }, make('svg', { width: '100%', height: 12, preserveAspectRatio: 'none', viewBox: '0 0 100 12', 'aria-hidden': 'true' },
    make('rect', { class: `fill side${side}`, x: 0, y: 1, height: 10, width: value ? Math.max(100 * value / most, 0.5) : 0 })));
  const line = ([sends, ...values]) => make('tr', {}, make('th', { scope: 'row', class: 'number' }, sends === last ? `${last} or more` : String(sends)),
    values.flatMap((value, side) => [make('td', { class: 'number' }, count(value)), bar(value, side)]));
  const foot = (title, cell) => make('tr', { class: 'foot' }, make('th', { scope: 'row', class: 'number' }, title), lives.map(life => make('td', { colspan: 2 }, cell(life))));
  const table = make('table', { class: 'histogram' },
    make('thead', {}, make('tr', {}, make('th', { class: 'number', scope: 'col' }, 'sends'), SIDES.map(side => make('th', { colspan: 2, scope: 'col' }, `ACKs of the ${side}`)))),
    make('tbody', {}, rows.map(line)),
    make('tfoot', {}, foot('most', life => `${count(life.most)} sends of one ACK`), foot('longest', life => `${life.longest.toFixed(1)} s in the outbox`),
      foot('at the end', life => life.kept ? `${count(life.kept)} in the outbox, one of them sent ${count(life.kept_most)} times` : 'none in the outbox')));
  place.replaceChildren(rows.length ? make('div', { class: 'scroll' }, table) : make('p', { class: 'quiet' }, 'No ACK was dropped during the capture.'));
});

// In the table of kinds, a click on a kind filters the findings.
for (const row of document.querySelectorAll('#verdict tr[data-kind]')) {
  const kind = row.dataset.kind, title = row.cells[2];
  title.replaceChildren(make('a', { href: '#fault=' + kind, click: event => { event.preventDefault(); show({ fault: kind }); byId('findings').scrollIntoView(); } }, title.textContent));
}
