// Rate and latency of one verb and kind, drawn as SVG.

import { element, reconcile, say, span } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 340, LEFT = 52, RIGHT = 6;
const RATE = { top: 12, bottom: 62 }, LATENCY = { top: 82, bottom: 142 }, HEIGHT = 158;

/** Draws a card for each series, and keeps the cards that are there. */
export function pace(place, snapshot) {
  reconcile(place, snapshot.pace, (s) => `${s.kind} ${s.verb}`, card,
    (card, series) => draw(card, series, snapshot));
}

function card(series) {
  const title = element('h3', {}, `${series.verb} `, element('span', {}, series.kind));
  const key = element('p', {}, element('span', { class: 'key' }), element('span', { class: 'key slow' }));
  const picture = shape('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img' });
  return element('figure', { class: 'card' }, title, element('p', { class: 'sum' }), key, picture);
}

function draw(card, series, { step, steps }) {
  const { total, points } = series;
  // The step that has only begun would look like a fall.
  const whole = points.filter((point) => point.ago > 0 && point.ago < steps);
  const rate = (point) => point.count / step;
  const last = whole.find((point) => point.ago === 1);
  const failed = total.failed ? `, ${total.failed} not OK` : '';
  const sum = `${number(last ? rate(last) : 0)}/s now · ${total.count} in all${failed}`;
  say(card.querySelector('.sum'), sum);
  const [fast, slow] = card.querySelectorAll('.key');
  say(fast, `median ${span(total.p50)}`);
  say(slow, `p99 ${span(total.p99)}`);

  const picture = card.querySelector('svg');
  picture.setAttribute('aria-label', `${series.verb} of ${series.kind}: ${sum}, median `
    + `${span(total.p50)}, p99 ${span(total.p99)}`);
  const x = (ago) => LEFT + (WIDTH - LEFT - RIGHT) * (1 - ago / (steps - 1));
  const top = nice(Math.max(0, ...whole.map(rate)));
  const slowest = nice(Math.max(0, ...whole.map((point) => point.p99)));
  const parts = [...grid(RATE, `${number(top)}/s`, '0'), ...grid(LATENCY, span(slowest), '0')];
  for (const [ago, text] of [[steps - 1, '5 min ago'], [1, 'now']]) {
    const anchor = ago === 1 ? 'end' : 'start';
    parts.push(label(x(ago) + (ago === 1 ? 4 : -2), HEIGHT - 3, text, anchor));
  }
  const width = (WIDTH - LEFT - RIGHT) / steps - 1;
  for (const point of whole) {
    parts.push(bar(point, 'count', 'bar', x, width, top, step, point.count));
    if (point.failed) parts.push(bar(point, 'failed', 'bad', x, width, top, step, point.failed));
  }
  const y = (seconds) => scale(LATENCY, seconds / slowest);
  for (const name of ['p99', 'p50']) parts.push(...line(whole, name, x, (point) => y(point[name])));
  picture.replaceChildren(...parts);
}

function bar(point, what, className, x, width, top, step, count) {
  const y = scale(RATE, count / step / top);
  const made = shape('rect', {
    class: className, x: x(point.ago) - width / 2, y, width, height: Math.max(0.5, RATE.bottom - y),
  });
  const title = shape('title');
  title.textContent = `${point.ago * step} s ago: ${count} ${what === 'failed' ? 'not OK' : 'ended'}, `
    + `median ${span(point.p50)}, p99 ${span(point.p99)}`;
  made.append(title);
  return made;
}

/** A line with gaps where nothing ended, and a dot where it would be too short to see. */
function line(points, className, x, y) {
  const runs = [];
  for (const point of points) {
    const run = runs.at(-1);
    if (run && run.at(-1).ago === point.ago + 1) run.push(point);
    else runs.push([point]);
  }
  return runs.map((run) => run.length === 1
    ? shape('circle', { class: className, cx: x(run[0].ago), cy: y(run[0]), r: 1.8 })
    : shape('path', { class: className, d: `M${run.map((p) => `${x(p.ago)} ${y(p)}`).join('L')}` }));
}

function grid(area, top, bottom) {
  const across = (y) => shape('line', { class: 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y });
  return [across(area.top), across(area.bottom),
    label(LEFT - 5, area.top + 4, top, 'end'), label(LEFT - 5, area.bottom + 3, bottom, 'end')];
}

function label(x, y, text, anchor) {
  const made = shape('text', { x, y, 'text-anchor': anchor });
  made.textContent = text;
  return made;
}

function shape(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function scale(area, share) {
  return area.bottom - (area.bottom - area.top) * Math.min(1, share);
}

/** The next of 1, 2 and 5 times a power of ten. */
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function number(value) {
  if (value >= 100) return String(Math.round(value));
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, '');
}
