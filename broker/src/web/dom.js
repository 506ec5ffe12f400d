// Small hands: elements whose content is only ever text, tables that keep their rows, and words for
// times.

/** An element. Attributes by name; children are elements or text, never markup. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Sets an element's text, if it is not that already: what did not change is not announced. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * Brings the children of `parent` in line with `items`. Those that stay are kept and changed in
 * place, so that the focus and the reader's place are not lost.
 */
export function reconcile(parent, items, key, make, change) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    change(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const gone of known.values()) gone.remove();
}

/**
 * A table of `columns` ({label, className, cell}) in `place`. A cell is text, or a list of elements
 * and texts.
 */
export function table(place, label, columns, rows, key, { empty, rowClass = () => '' }) {
  let body = place.querySelector('tbody');
  if (!body) {
    body = element('tbody');
    const head = columns.map((c) => element('th', { scope: 'col', class: c.className === 'number' ? 'number' : '' }, c.label));
    const whole = element('table', {}, element('thead', {}, element('tr', {}, ...head)), body);
    const region = { class: 'scroll', role: 'region', 'aria-label': label, tabindex: '0' };
    place.append(element('div', region, whole), element('p', { class: 'empty' }, empty));
    body.dataset.first = 'yes';
  }
  const first = body.dataset.first === 'yes';
  delete body.dataset.first;
  const [region, none] = place.children;
  region.hidden = rows.length === 0;
  none.hidden = rows.length > 0;
  reconcile(body, rows, key, () => {
    const cells = columns.map((c) => element('td', { class: c.className ?? '', 'data-label': c.label }));
    const row = element('tr', first ? {} : { class: 'new' }, ...cells);
    // Or it would glow again whenever it changes its place.
    row.addEventListener('animationend', () => row.classList.remove('new'));
    return row;
  }, (row, item) => {
    const classes = rowClass(item);
    row.classList.toggle('stuck', classes === 'stuck');
    columns.forEach((column, index) => fill(row.cells[index], column.cell(item)));
  });
}

/** Puts content into a cell, unless the same is there already. */
export function fill(cell, content) {
  if (typeof content === 'string') {
    if (cell.childElementCount || cell.textContent !== content) cell.textContent = content;
    return;
  }
  const next = element('td', {}, ...content);
  if (![...next.childNodes].every((node, i) => cell.childNodes[i]?.isEqualNode(node))
    || next.childNodes.length !== cell.childNodes.length) {
    const focused = cell.contains(document.activeElement);
    cell.replaceChildren(...next.childNodes);
    if (focused) cell.querySelector('a')?.focus();
  }
}

export function badge(kind, text) {
  return element('span', { class: `badge ${kind}` }, text);
}

/** "350 ms", "4.2 s", "3 m 20 s", "2 h 5 m", "3 d 4 h". */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 0.0995) return `${(seconds * 1000).toPrecision(2).replace(/\.0$/, '')} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A point in time, in the reader's own words. */
export function moment(text) {
  if (!text) return '–';
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}
