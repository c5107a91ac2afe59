// The conversation as it grows and branches: streams that come and go, scrolling, focus, editing, menus, keys.
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

  // Gone with its message or its branch; the answer goes on without it.
  on("htmx:before:cleanup", ({target}) => isStream(target) && setTimeout(forget, 0, target));
  function forget(stream) {
    if (stream.isConnected) return; // only taken up anew
    const state = stateOf(stream);
    state.over = true;
    clearTimeout(state.timer);
    state.leaveLane?.();
  }

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

  // Another branch. What had the focus, a message or one of its buttons, has it again, and stands where it stood; where
  // an answer begins, the reader goes along.

  let thread = document.getElementById("thread");
  let held = null;
  let concerned = null; // the message whose menu was opened last

  on("htmx:before:swap", () => {
    const element = thread?.contains(document.activeElement) ? document.activeElement : null;
    const message = element?.closest(".message") ?? concerned;
    const places = [message, message?.nextElementSibling, message?.previousElementSibling].map((place) => place?.id);
    held = {element, places, step: element?.dataset.step, top: element?.getBoundingClientRect().top};
  });

  on("htmx:after:swap", () => {
    const current = document.getElementById("thread");
    if (current === thread) {
      // A message was drawn anew under the focus, as after Stop.
      if (document.activeElement === document.body && held?.element?.isConnected === false)
        document.getElementById(held.places[0])?.focus({preventScroll: true});
      return;
    }
    thread = current;
    if (!thread || !("about" in thread.dataset)) return;
    const message =
      [thread.dataset.about, ...held.places].map((id) => document.getElementById(id)).find(Boolean) ?? thread;
    const step = (which) => message.querySelector(`[data-step${which}]`);
    const button = held.step && (step(`="${held.step}"`) ?? step(""));
    const target = button || message;
    if (document.activeElement?.id !== "message") target.focus({preventScroll: true});
    follows = message.matches("[aria-busy]");
    if (follows) toTheEnd();
    else if (held.top !== undefined) scrollBy(0, target.getBoundingClientRect().top - held.top);
    else message.scrollIntoView({block: "nearest"});
  });

  // Editing

  on("htmx:after:swap", ({detail: {ctx}}) => {
    if (!ctx.sourceElement?.matches?.("form[hx-get]")) return;
    const box = ctx.sourceElement.closest(".message").querySelector(".editor > textarea");
    box?.focus();
    box?.setSelectionRange(box.value.length, box.value.length);
  });

  on("formdata", ({target, formData}) => {
    const model = document.getElementById("composer")?.elements.model?.value;
    if (target.matches("[data-editor]") && model) formData.set("model", model);
  });

  on("keydown", (event) => {
    const editor = event.target.closest("[data-editor]");
    if (!editor || event.isComposing) return;
    if (event.key === "Escape") stopEditing(event, editor);
    if (event.target.matches("textarea") && event.key === "Enter" && !event.shiftKey && !event.altKey && !isTouch()) {
      event.preventDefault();
      editor.requestSubmit();
    }
  });

  on("input", ({target}) => {
    const key = target.form?.matches("[data-editor]") && target.form.elements.key;
    if (key) key.value = crypto.randomUUID?.() ?? key.value; // another text is another question
  });

  on("click", (event) => {
    const editor = event.target.closest("[data-cancel-edit]")?.closest("[data-editor]");
    if (editor) stopEditing(event, editor);
  });

  function stopEditing(event, editor) {
    event.preventDefault();
    const message = editor.closest(".message");
    editor.remove();
    message.querySelector("[data-edit]").focus();
  }

  const isTouch = () => matchMedia("(pointer: coarse)").matches;

  // The menus of messages are there once; they are told for which of them they were opened.

  on("click", ({target}) => {
    const opener = target.closest(".message [popovertarget]");
    if (!opener) return;
    concerned = opener.closest(".message");
    const id = concerned.id.replace("message-", "");
    for (const form of document.querySelectorAll("[data-about-message] form")) {
      form.reset();
      const address = form.getAttribute("action").replace(/[^/]*(?=\/[^/]*$)/, id);
      form.setAttribute("action", address);
      form.setAttribute("hx-post", address);
    }
    for (const choice of document.querySelectorAll("#answer-menu [name=model]"))
      choice.hidden = choice.value === opener.dataset.model;
  });

  on("submit", ({target}) => {
    const menu = target.closest(".menu[data-about-message]");
    if (menu) setTimeout(() => menu.hidePopover());
  });

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
  const KEYS = {
    c: "[data-copy]",
    e: "[data-edit]",
    r: "[data-regenerate]",
    ArrowLeft: '[data-step="before"]',
    ArrowRight: '[data-step="after"]',
  };
  const isBox = (element) => element.id === "message";
  const isField = (element) => element.matches("input, select, textarea");

  on("keydown", (event) => {
    const {key, target, altKey, ctrlKey, metaKey} = event;
    if (event.defaultPrevented || event.isComposing) return;
    if (key === "Escape" && !document.querySelector(OPEN) && (isBox(target) || !isField(target)))
      [...document.querySelectorAll("[aria-busy=true] [data-stop]")].at(-1)?.click();
    else if (KEYS[key] && !altKey && !ctrlKey && !metaKey && target.matches(".message"))
      press(event, target.querySelector(KEYS[key]));
    else if (key === "ArrowUp" && !altKey && isBox(target) && !target.value)
      press(event, [...document.querySelectorAll("[data-edit]")].at(-1));
    else if (altKey && ["ArrowUp", "ArrowDown"].includes(key) && (isBox(target) ? !target.value : !isField(target)))
      step(event, key === "ArrowUp" ? -1 : 1);
  });

  function press(event, button) {
    if (!button) return;
    event.preventDefault();
    button.click();
  }

  function step(event, by) {
    const stops = [...document.querySelectorAll(".message, #message")];
    const here = stops.indexOf(event.target.closest(".message, #message") ?? document.getElementById("message"));
    const next = stops[here + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}
