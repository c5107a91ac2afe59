// The conversation as it grows: streams that come and go, scrolling, copy buttons, keys.
"use strict";
{
  const FIRST_GAP = 500; // ms; doubled after each failure, up to
  const LONGEST_GAP = 90000;
  const POLL_EVERY = 20000; // what a page without a stream asks for
  const LANES = 4; // streams per browser where it has six connections in all

  const on = (name, listen) => document.addEventListener(name, listen);
  const root = document.documentElement;
  const banner = document.getElementById("offline");
  const streams = () => document.querySelectorAll("[hx-sse\\:connect]");

  // Streams. htmx reads them; when to open, close and open again is decided here, in one place: a hidden page has none,
  // a lost one is tried again with growing gaps from where it broke off, and one that was refused is left alone.

  const states = new WeakMap();
  const stateOf = (stream) => {
    if (!states.has(stream)) states.set(stream, {id: "", failures: 0, timer: 0, asking: false, over: false});
    return states.get(stream);
  };
  const isStream = (element) => element instanceof Element && element.hasAttribute("hx-sse:connect");
  const mayOpen = (state) => !document.hidden && !state.over && !state.asking && !state.connection;

  function open(stream) {
    const state = stateOf(stream);
    clearTimeout(state.timer);
    if (stream.isConnected && mayOpen(state)) htmx.process(stream, true);
    else if (!state.asking && !state.connection) state.leaveLane?.();
  }

  function close(stream) {
    stateOf(stream).connection?.reader?.cancel();
  }

  function tryAgain(stream) {
    const state = stateOf(stream);
    if (state.over || document.hidden || !stream.isConnected) return;
    state.failures += 1;
    if (state.failures > 1) banner.hidden = false; // the first break may be a restart that nobody has to know of
    const gap = Math.min(FIRST_GAP * 2 ** (state.failures - 1), LONGEST_GAP);
    clearTimeout(state.timer);
    state.timer = setTimeout(open, gap * (1 + Math.random() / 4), stream);
  }

  on("htmx:config:request", (event) => {
    const {ctx} = event.detail;
    const stream = ctx.sourceElement;
    if (!isStream(stream) || event.target !== stream) return;
    const state = stateOf(stream);
    if (!mayOpen(state) || !hasLane(stream)) {
      event.preventDefault();
      return;
    }
    state.asking = true;
    if (state.id) ctx.request.headers["Last-Event-ID"] = state.id;
  });

  on("htmx:finally:request", ({detail: {ctx}}) => {
    if (isStream(ctx.sourceElement)) stateOf(ctx.sourceElement).asking = false;
  });

  on("htmx:sse:before:connection", (event) => {
    const state = stateOf(event.target);
    const {connection} = event.detail;
    if (document.hidden || state.over) {
      event.preventDefault();
      return;
    }
    connection.lastEventId ||= state.id;
    state.connection = connection;
    banner.hidden = true;
  });

  on("htmx:sse:after:message", ({target, detail}) => {
    const state = stateOf(target);
    state.failures = 0;
    state.id = detail.message.id || state.id;
  });

  on("htmx:sse:close", ({target, detail}) => {
    if (!isStream(target)) return;
    const state = stateOf(target);
    state.connection = null;
    state.leaveLane?.();
    if (detail.reason === "message") state.over = true;
    if (detail.reason === "ended") tryAgain(target);
  });

  on("htmx:response:error", ({target, detail: {ctx}}) => {
    if (!isStream(target)) return;
    const state = stateOf(target);
    state.leaveLane?.();
    state.over = [401, 403, 404].includes(ctx.response.status);
    if (state.over && ctx.response.status !== 401) look(target);
    else tryAgain(target);
  });

  on("htmx:error", ({target}) => {
    if (!isStream(target)) return;
    stateOf(target).leaveLane?.();
    tryAgain(target);
  });

  on("visibilitychange", () => {
    for (const stream of streams()) {
      if (document.hidden) close(stream);
      else {
        stateOf(stream).failures = 0;
        open(stream);
      }
    }
  });
  const tryNow = () => streams().forEach(open);
  addEventListener("online", () => {
    banner.hidden = true;
    tryNow();
  });
  addEventListener("offline", () => { banner.hidden = false; });
  on("htmx:after:request", ({detail: {ctx}}) => { banner.hidden ||= ctx.response.status < 500; });
  on("click", ({target}) => target.closest("[data-try-now]") && tryNow());

  // Over HTTP/1.1 a browser has six connections to one host; windows side by side must leave some for everything else.
  const isNarrow = /^http\/1/.test(performance.getEntriesByType("navigation")[0]?.nextHopProtocol) && navigator.locks;

  function hasLane(stream) {
    const state = stateOf(stream);
    if (!isNarrow || state.leaveLane) return true;
    takeLane(state).then((taken) => {
      if (taken) open(stream);
      else state.timer = setTimeout(open, 2000, stream);
    });
    return false;
  }

  async function takeLane(state) {
    for (let lane = 0; lane < LANES && !state.leaveLane; lane += 1) {
      await new Promise((resolve) => {
        navigator.locks.request(`parley-stream-${lane}`, {ifAvailable: true}, (lock) => {
          if (!lock) return resolve();
          return new Promise((leave) => {
            state.leaveLane = () => {
              delete state.leaveLane;
              leave();
            };
            resolve();
          });
        });
      });
    }
    return Boolean(state.leaveLane);
  }

  // A page without a stream learns of the end by asking for the message now and then; its events are one step below.
  function look(stream) {
    const address = stream.getAttribute("hx-sse:connect").replace(/\/events\b.*/, "");
    htmx.ajax("GET", address, {target: stream, swap: "outerHTML"});
  }
  setInterval(() => {
    for (const stream of streams()) if (!stateOf(stream).connection && !stateOf(stream).over) look(stream);
  }, POLL_EVERY);

  // Scrolling: at the end one stays at the end; whoever scrolled up is left alone.

  let follows = true;
  let last = scrollY;
  const toTheEnd = () => scrollTo({top: root.scrollHeight, behavior: "instant"});
  const [visit] = performance.getEntriesByType("navigation");
  if (document.getElementById("thread") && visit?.type === "navigate" && !location.hash) toTheEnd();

  addEventListener("scroll", () => {
    const left = root.scrollHeight - root.clientHeight - scrollY;
    if (left < 2) follows = true;
    else if (scrollY < last) follows = false;
    else if (scrollY > last && left < 64) follows = true;
    last = scrollY;
  }, {passive: true});
  on("htmx:after:swap", () => follows && requestAnimationFrame(() => follows && toTheEnd()));

  // Copy buttons on finished code; the block that still grows is drawn again and again and gets its button later.

  const BARE = ".prose:not(.open) figure.code > figcaption:not(:has(button))";
  const decorate = (root) => {
    for (const caption of root.querySelectorAll?.(BARE) ?? [])
      caption.append(document.getElementById("text-copy-code").content.cloneNode(true));
  };
  decorate(document);
  on("htmx:after:settle", ({detail}) => detail.newContent.forEach(decorate));

  // Keys

  const OPEN = `dialog[open], :popover-open${CSS.supports("selector(select:open)") ? ", select:open" : ""}`;
  const isBox = (element) => element.id === "message";
  const isField = (element) => element.matches("input, select, textarea");

  on("keydown", (event) => {
    const {key, target, altKey, ctrlKey, metaKey} = event;
    if (event.defaultPrevented || event.isComposing) return;
    if (key === "Escape" && !document.querySelector(OPEN) && (isBox(target) || !isField(target)))
      [...document.querySelectorAll("[aria-busy=true] [data-stop]")].at(-1)?.click();
    else if (key === "c" && !altKey && !ctrlKey && !metaKey && target.matches(".message"))
      target.querySelector("[data-copy]")?.click();
    else if (altKey && ["ArrowUp", "ArrowDown"].includes(key) && (isBox(target) ? !target.value : !isField(target)))
      step(event, key === "ArrowUp" ? -1 : 1);
  });

  function step(event, by) {
    const stops = [...document.querySelectorAll(".message, #message")];
    const here = stops.indexOf(event.target.closest(".message, #message") ?? document.getElementById("message"));
    const next = stops[here + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}
