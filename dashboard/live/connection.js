// The connection to /api/v1/events: dials, notices silence, dials again and goes on from the last
// event that it saw.

const SILENCE = 6000; // the balancer speaks each second, so this long means the line is dead
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;

/**
 * Calls `onEvent(name, data)` for each event and `onState(state)` with "connecting", "live" or
 * "lost" as that changes. Returns what ends it. After `silence` milliseconds the line is dead.
 */
export function connect({ url, events, onEvent, onState, silence = SILENCE }) {
  let source = null;
  let watchdog = 0;
  let pause = FIRST_PAUSE;
  let lastId = "";

  function dial() {
    source = new EventSource(lastId ? `${url}?last_event_id=${encodeURIComponent(lastId)}` : url);
    source.onerror = redial;
    for (const name of events) {
      source.addEventListener(name, (event) => {
        alive();
        lastId = event.lastEventId || lastId;
        onEvent(name, JSON.parse(event.data));
      });
    }
    watch();
  }

  function alive() {
    pause = FIRST_PAUSE;
    onState("live");
    watch();
  }

  function watch() {
    clearTimeout(watchdog);
    watchdog = setTimeout(redial, silence);
  }

  // EventSource gives up for good on some answers (a 503, a proxy's page) and never notices a
  // line that died without a word, so both are handled here, in one way.
  function redial() {
    clearTimeout(watchdog);
    source.close();
    onState("lost");
    watchdog = setTimeout(dial, pause * (0.5 + Math.random() / 2));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }

  onState("connecting");
  dial();
  return () => {
    clearTimeout(watchdog);
    source.close();
  };
}
