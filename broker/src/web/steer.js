// Who looks at the page, and what they may do to drivers.

import { element, say } from './dom.js';

const WITHIN = 10000;
const at = (id) => document.getElementById(id);

const ACTS = {
  drain: {
    title: 'Drain', button: 'Drain',
    note: 'It finishes what it has, gets no new work and leaves. Its process dials in again unless it is stopped as well.',
  },
  evict: {
    title: 'Evict', button: 'Evict',
    note: 'Its session ends at once. What it runs may go on, and its machines wait until it is back. Its process dials in again unless it is stopped as well.',
  },
};

let me = { maySteer: false }, driver, asked;

/** Asks who we are. Who may not look any more gets to see where to log in. */
export async function who() {
  try {
    const answer = await fetch('/api/me', { signal: AbortSignal.timeout(WITHIN) });
    if (answer.status === 401 || answer.status === 403) location.reload();
    if (answer.ok) me = await answer.json();
  } catch {
    return; // The banner says why.
  }
  say(at('me'), `${me.identity} · ${me.maySteer ? 'may steer' : 'read-only'}`);
  at('logout').hidden = !me.loggedIn;
  offer(driver);
}

/** Offers what can be done to the driver that is looked at. */
export function offer(looked) {
  driver = looked;
  const there = Boolean(driver) && driver.state !== 'gone';
  at('steer').hidden = !me.maySteer || !there;
  at('drain').disabled = driver?.state === 'draining';
}

function ask(act) {
  asked = { act, session: driver.session };
  say(at('ask-title'), `${ACTS[act].title} ${driver.instance}?`);
  say(at('ask-note'), ACTS[act].note);
  say(at('ask-do'), ACTS[act].button);
  trouble('');
  at('ask').className = act;
  at('ask').showModal();
}

async function steer(event) {
  event.preventDefault();
  at('ask-do').disabled = true;
  const { act, session } = asked;
  try {
    const answer = await fetch(`/api/drivers/${encodeURIComponent(session)}/${act}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Machine-Broker': 'page' },
      body: JSON.stringify({ reason: at('reason').value.trim() }),
      signal: AbortSignal.timeout(WITHIN),
    });
    if (answer.ok) {
      at('ask').close();
      at('reason').value = '';
    } else {
      trouble((await answer.text()).trim());
    }
  } catch {
    trouble('No answer from the broker: it may have happened, or not.');
  }
  at('ask-do').disabled = false;
}

function trouble(text) {
  at('ask-trouble').replaceChildren(...(text ? [element('span', {}, text)] : []));
}

for (const act of Object.keys(ACTS)) at(act).addEventListener('click', () => ask(act));
at('ask-form').addEventListener('submit', steer);
at('ask-cancel').addEventListener('click', () => at('ask').close());
