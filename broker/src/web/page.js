// The operators' page: shows what /api/events tells every second. What it can do is in steer.js.

import { pace } from './charts.js';
import { badge, element, fill, moment, reconcile, say, span, table } from './dom.js';
import { offer, who } from './steer.js';

/** Nothing heard for so long means that the connection is lost, whatever the browser thinks. */
const SILENCE = 5000;
const RETRY = 1000;

const at = (id) => document.getElementById(id);
const link = (session, text) => element('a', { href: `#driver/${session}` }, text);

let version, snapshot, watchdog, looked = false;
const states = new Map();

// ---- the connection ----

function connect() {
  const source = new EventSource('/api/events');
  const lost = () => {
    source.close();
    clearTimeout(watchdog);
    at('lost').hidden = false;
    document.body.classList.add('stale');
    at('health').className = 'badge failed';
    say(at('health'), 'Not connected');
    say(at('lost'), 'Connection lost, trying again… What you see is as it was.');
    setTimeout(() => who().then(connect), RETRY);
  };
  const wait = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, SILENCE);
  };
  source.onerror = lost;
  source.onmessage = (event) => {
    wait();
    at('lost').hidden = true;
    document.body.classList.remove('stale');
    snapshot = JSON.parse(event.data);
    // A newer broker has a newer page.
    version ??= snapshot.status.version;
    if (version !== snapshot.status.version) location.reload();
    show();
  };
  wait();
}

// ---- what there is ----

function show() {
  const { status, drivers, running, finished } = snapshot;
  const up = (Date.parse(status.now) - Date.parse(status.startedAt)) / 1000;
  say(at('about'), `${status.replica ? `replica ${status.replica} · ` : ''}version ${status.version} · up ${span(up)}`);
  health(status);
  tiles(status);
  announce(drivers);
  table(at('drivers'), 'Drivers', DRIVER_COLUMNS, drivers, (d) => d.session,
    { empty: 'No driver is connected.' });
  table(at('running'), 'Running operations', RUNNING_COLUMNS, running, (o) => o.id,
    { empty: 'Nothing runs.', rowClass: (o) => (o.stuck ? 'stuck' : '') });
  table(at('finished'), 'Recently finished operations', FINISHED_COLUMNS, finished, (o) => o.id,
    { empty: 'Nothing has finished since this broker started.' });
  say(at('drivers-count'), counted(drivers.length, snapshot.driversInAll));
  say(at('running-count'), counted(running.length, snapshot.runningInAll));
  charts();
  driverPage();
}

function health(status) {
  const count = status.concerns.length;
  at('health').className = `badge ${count ? 'ill' : 'well'}`;
  say(at('health'), count ? `${count} ${count === 1 ? 'concern' : 'concerns'}` : 'All is well');
  document.title = count ? `(${count}) Machine Broker` : 'Machine Broker';
  at('concerns').hidden = count === 0;
  reconcile(at('concern-list'), status.concerns.map((c, i) => ({ ...c, i })), (c) => String(c.i),
    () => element('li', {}, element('p'), element('p')),
    (item, concern) => {
      say(item.children[0], concern.what);
      say(item.children[1], concern.advice);
    });
}

function tiles(status) {
  const tiles = [
    ['Drivers ready', String(status.driversReady), false],
    ['Suspect', String(status.driversSuspect), status.driversSuspect > 0],
    ['Draining', String(status.driversDraining), false],
    ['Running', String(status.operationsRunning), false],
    ['Oldest pending', span(status.oldestPending), false],
    ['Classes', String(status.classes), false],
  ];
  reconcile(at('tiles'), tiles, ([name]) => name,
    ([name]) => element('div', {}, element('dt', {}, name), element('dd')),
    (tile, [, value, warn]) => {
      say(tile.lastChild, value);
      tile.classList.toggle('warn', warn);
    });
}

function charts() {
  const none = snapshot.pace.length === 0;
  if (none) at('pace').replaceChildren(element('p', { class: 'empty' }, 'Nothing has ended within the last five minutes.'));
  else pace(at('pace'), snapshot);
}

/** Says what changed to those who listen to the page. */
function announce(drivers) {
  const news = [];
  const seen = new Set();
  for (const driver of drivers) {
    const before = states.get(driver.session);
    seen.add(driver.session);
    if (before?.state !== driver.state && looked) {
      news.push(`driver ${driver.instance} is ${driver.state}`);
    }
    states.set(driver.session, { state: driver.state, instance: driver.instance });
  }
  for (const [session, { instance }] of states) {
    if (!seen.has(session)) {
      states.delete(session);
      news.push(`driver ${instance} is gone`);
    }
  }
  looked = true;
  if (news.length) say(at('news'), news.join('; '));
}

function counted(shown, inAll) {
  return shown < inAll ? `${shown} of ${inAll}` : String(inAll);
}

// ---- tables ----

const text = (label, cell, className) => ({ label, cell, className });
const state = (driver) => [badge(driver.state, driver.state),
  ...(driver.stateReason ? [element('div', { class: 'note' }, driver.stateReason)] : [])];
const kinds = (driver) => driver.kinds
  .map((kind) => kind.kind + (kind.provider ? ` (${kind.provider})` : '')).join(', ');
const protocol = (driver) => (driver.protocol === 0 ? '2018' : `v${driver.protocol}`);

const DRIVER_COLUMNS = [
  text('Instance', (d) => [link(d.session, d.instance)], 'half'),
  text('State', state, 'half'),
  text('Kinds', kinds, 'wide'),
  text('Version', (d) => d.version || '–'),
  text('Protocol', protocol),
  text('In flight', (d) => `${d.inFlight} / ${d.capacity}`, 'number'),
  text('Queued', (d) => String(d.queued), 'number'),
  text('Last heard', (d) => `${span(d.lastHeard)} ago`, 'number'),
  text('Round trip', (d) => span(d.roundTrip), 'number'),
  text('Errors', (d) => `${Math.round(d.errorRate * 100)} %`, 'number'),
];

const WHAT = [
  text('Machine', (o) => o.machine || '–', 'wide'),
  text('Verb', (o) => o.verb, 'half'),
  text('Class', (o) => [o.kind, element('div', { class: 'note' }, o.class)], 'half'),
];
const DRIVER = text('Driver', (o) => (o.session ? [link(o.session, o.instance)] : 'none yet'), 'half');

const RUNNING_COLUMNS = [
  ...WHAT, DRIVER,
  text('State', (o) => (o.stuck
    ? [badge('stuck', 'stuck'), element('div', { class: 'note' }, `${o.delivery}, ${o.stuck}`)]
    : [badge('', o.delivery)]), 'half'),
  text('Age', (o) => span(o.age), 'number'),
  text('Time left', (o) => span(o.timeLeft), 'number'),
  text('Attempt', (o) => String(o.attempts), 'number'),
  text('Operation', (o) => o.id, 'wide code'),
];

const outcome = (o) => [badge(o.outcome === 'OK' ? 'ready' : 'failed', o.outcome)];
const FINISHED_COLUMNS = [
  ...WHAT, DRIVER,
  text('Outcome', outcome, 'half'),
  text('Took', (o) => span(o.age), 'number'),
  text('Submitted', (o) => moment(o.submittedAt), 'number'),
  text('Message', (o) => o.message, 'wide'),
];

const ITS_COLUMNS = [
  ...WHAT,
  text('State', (o) => (o.finished ? outcome(o) : RUNNING_COLUMNS[4].cell(o)), 'half'),
  text('Age or time taken', (o) => span(o.age), 'number'),
  text('Until sent', (o) => span(o.queuedFor), 'number'),
  text('Until accepted', (o) => span(o.acceptedAfter), 'number'),
  text('Submitted', (o) => moment(o.submittedAt), 'number'),
  text('Message', (o) => o.message, 'wide'),
];

const HISTORY_COLUMNS = [
  text('When', (e) => moment(e.at), 'half'),
  text('What', (e) => e.what, 'half'),
  text('Session', (e) => (e.session ? [link(e.session, e.session)] : '–'), 'wide code'),
  text('Details', (e) => e.details, 'wide'),
];

// ---- a driver's page ----

/** The driver in the address: a session, the beginning of one, or an instance. */
function chosen() {
  try {
    return decodeURIComponent(location.hash.match(/^#driver\/(.+)$/)?.[1] ?? '');
  } catch {
    return ''; // Not an address that the page made.
  }
}

async function driverPage() {
  const name = chosen();
  at('overview').hidden = Boolean(name);
  at('driver').hidden = !name;
  if (!name) return offer();
  let details;
  try {
    const answer = await fetch(`/api/drivers/${encodeURIComponent(name)}`,
      { signal: AbortSignal.timeout(SILENCE) });
    if (answer.status === 401 || answer.status === 403) return; // It ends for the whole page.
    details = answer.ok ? await answer.json()
      : { driver: null, why: UNKNOWN[answer.status] ?? UNKNOWN[404], history: [], operations: [] };
  } catch {
    return; // The banner says why.
  }
  if (name !== chosen()) return;
  const { driver, history, operations } = details;
  const gone = driver?.state === 'gone';
  offer(driver);
  at('driver').dataset.session = driver?.session ?? name;
  at('driver-facts').hidden = !driver;
  at('driver-note').hidden = Boolean(driver) && !gone;
  say(at('driver-note'), gone ? `Gone since ${moment(driver.goneAt)}: ${driver.stateReason}.` : details.why ?? '');
  fill(at('driver-title'), driver ? [`${driver.instance} `, badge(driver.state, driver.state)]
    : [`${name} `, badge('', 'unknown')]);
  if (driver) facts(driver);
  table(at('driver-operations'), 'Operations of this driver', ITS_COLUMNS, operations, (o) => o.id,
    { empty: 'None lately.', rowClass: (o) => (o.stuck ? 'stuck' : '') });
  say(at('driver-operations-more'), more(details.moreOperations));
  table(at('driver-history'), 'History of this driver', HISTORY_COLUMNS,
    history.map((e, i) => ({ ...e, i: history.length - i })), (e) => `${e.at} ${e.what} ${e.i}`,
    { empty: 'Nothing is remembered.' });
  say(at('driver-history-more'), more(details.moreHistory));
}

const UNKNOWN = {
  404: 'No such driver is known to this broker: it may be of before its start.',
  409: 'Several drivers begin so: say more of the session.',
};
const more = (count) => (count ? `and ${count} more` : '');

function facts(d) {
  const facts = [
    ['State', d.stateReason ? `${d.state}: ${d.stateReason}` : d.state],
    ['Name', d.name || '–'], ['Session', d.session], ['Instance', d.instance],
    ['Boot', d.boot || '–'], ['Version', d.version || '–'], ['Protocol', protocol(d)],
    ['Address', d.address],
    ['Kinds', d.kinds.map((k) => `${k.kind}\n${k.apiVersion}${k.provider ? `, provider ${k.provider}` : ''}`).join('\n')],
    ['Verbs', d.verbs.join(', ')], ['Connected', moment(d.connectedAt)],
    ...(d.goneAt ? [['Gone', moment(d.goneAt)]] : []),
    ['Last heard', `${span(d.lastHeard)} ago`], ['Round trip', span(d.roundTrip)],
    ['In flight', `${d.inFlight} of ${d.capacity}`], ['Queued', String(d.queued)],
    ['Oldest pending', span(d.oldestPending)],
    ['Answers', `${d.succeeded} good, ${d.failed} failed`],
    ['Errors lately', `${Math.round(d.errorRate * 100)} %`],
    ['Takeovers', String(d.takeovers)], ['Odd frames', String(d.oddFrames)],
    ['Last error', d.lastError ? `${d.lastError} (${moment(d.lastErrorAt)})` : 'none'],
  ];
  reconcile(at('driver-facts'), facts, ([name]) => name,
    ([name]) => element('div', {}, element('dt', {}, name), element('dd')),
    (fact, [, value]) => say(fact.lastChild, value));
}

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // The address tells which driver is looked at.
  at('main').focus();
});
addEventListener('hashchange', () => {
  if (snapshot) driverPage();
  at('main').focus({ preventScroll: true });
  scrollTo(0, 0);
  who();
});
who();
connect();
