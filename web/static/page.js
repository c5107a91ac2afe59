// What every page does beyond links and forms. Everything here is a help: without it the page still works.
"use strict";
{
  const on = (name, listen) => document.addEventListener(name, listen);
  const say = (text) => document.getElementById("announcer")?.replaceChildren(text);

  // Drafts live in sessionStorage and belong to one person: whoever signs in next must not find them.
  const {person} = document.body.dataset;
  if (person && sessionStorage.getItem("person") !== person) {
    sessionStorage.clear();
    sessionStorage.setItem("person", person);
  }
  // A page out of the browser's memory may belong to somebody who has signed out.
  addEventListener("pageshow", (event) => event.persisted && location.reload());

  const fillTimeZone = (root) => {
    for (const input of root.querySelectorAll('input[name="time_zone"]'))
      input.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  };
  fillTimeZone(document);
  document.querySelector("dialog[data-open]")?.showModal();
  if (navigator.platform.startsWith("Mac"))
    for (const key of document.querySelectorAll("[data-command]")) key.textContent = "⌘";

  on("submit", ({target, submitter}) => {
    if (target.matches("[data-sign-out]")) sessionStorage.clear();
    if (target.matches("[data-theme-choice]") && submitter?.name === "theme") showTheme(submitter.value);
  });
  on("change", ({target}) => {
    if (target.name === "theme" && target.closest("[data-theme-choice]")) showTheme(target.value);
  });
  function showTheme(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  // An Enter that only confirms an input method's choice must not submit anything. Some browsers end the composition
  // first and send the key afterwards, so one Enter directly after the end is a confirmation too.
  let composedAt = -Infinity;
  on("compositionend", (event) => { composedAt = event.timeStamp; });
  on("keyup", () => { composedAt = -Infinity; });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const confirms = event.isComposing || event.keyCode === 229 || event.timeStamp - composedAt < 50;
    composedAt = -Infinity;
    if (!confirms) return;
    event.stopImmediatePropagation();
    if (!event.isComposing) event.preventDefault();
  }, true);

  const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]");
  on("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.code === "KeyO") {
      event.preventDefault();
      document.querySelector("[data-new-chat]")?.click();
    } else if (event.key === "?" && !isTyping(event.target) && !document.querySelector("dialog:modal")) {
      document.getElementById("shortcuts")?.showModal();
    }
  });

  // Copying. The label says that it worked, and so does the announcer.
  on("click", async ({target}) => {
    const button = target.closest("[data-copy], [data-copy-code]");
    if (!button) return;
    try {
      await copy(button, button.matches("[data-copy-code]") ? code(button) : readable(button.dataset.copy));
      acknowledge(button, document.body.dataset.copied);
    } catch (error) {
      if (error.name !== "NotAllowedError") throw error;
      acknowledge(button, document.body.dataset.notCopied);
    }
  });

  const code = (button) => ({text: button.closest("figure").querySelector("code").textContent});

  // What `selector` finds, as text the way one reads it, and as HTML for mail and word processors.
  function readable(selector) {
    const copied = document.createElement("div");
    copied.className = "visually-hidden";
    copied.append(...[...document.querySelectorAll(selector)].map((element) => element.cloneNode(true)));
    for (const decoration of copied.querySelectorAll("figcaption, button, .attached")) decoration.remove();
    const html = copied.getHTML();
    for (const item of copied.querySelectorAll("li")) (item.querySelector(":scope > p") ?? item).prepend(marker(item));
    document.body.append(copied);
    const text = copied.innerText.trim();
    copied.remove();
    return {text, html};
  }

  function marker(item) {
    const list = item.parentElement;
    return list.matches("ol") ? `${list.start + [...list.children].indexOf(item)}. ` : "- ";
  }

  function copy(button, {text, html}) {
    if (!navigator.clipboard) return copyByHand(button, text);
    if (!html) return navigator.clipboard.writeText(text);
    const formats = Object.entries({"text/plain": text, "text/html": html});
    return navigator.clipboard.write([
      new ClipboardItem(Object.fromEntries(formats.map(([type, content]) => [type, new Blob([content], {type})]))),
    ]);
  }

  // Pages that came over plain http are given no clipboard.
  function copyByHand(button, text) {
    const box = document.createElement("textarea");
    box.value = text;
    button.after(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    button.focus();
  }

  function acknowledge(button, text) {
    say(text);
    if (button.dataset.acknowledged) return;
    button.dataset.acknowledged = "true";
    const label = button.querySelector("span");
    const picture = button.querySelector("use");
    const show = (words, drawing) => {
      if (label) label.textContent = words;
      else button.setAttribute("aria-label", words);
      picture.setAttribute("href", drawing);
    };
    const before = [label?.textContent ?? button.getAttribute("aria-label"), picture.getAttribute("href")];
    show(text, before[1].replace(/#.*/, "#check"));
    setTimeout(() => {
      delete button.dataset.acknowledged;
      show(...before);
      say("");
    }, 2000);
  }

  // Notices beside the page: at most three, the newest last.
  on("click", ({target}) => target.closest("[data-dismiss]")?.closest(".notice").remove());
  const trim = () => {
    const toasts = document.getElementById("toasts");
    while (toasts?.children.length > 3) toasts.firstElementChild.remove();
  };
  const toast = (name) => {
    document.getElementById("toasts").append(document.getElementById(`text-${name}`).content.cloneNode(true));
    trim();
  };
  // What pages ask for by themselves fails silently (streams: thread.js), and is not asked again while nobody looks.
  const isQuiet = ({sourceElement, sourceEvent}) =>
    sourceElement === document.body ||
    sourceElement.hasAttribute("hx-sse:connect") ||
    ["every", "intersect", "load"].includes(sourceEvent?.type);

  on("htmx:before:request", (e) => document.hidden && e.detail.ctx.sourceEvent?.type === "every" && e.preventDefault());
  on("htmx:response:error", ({detail: {ctx}}) => {
    const {status} = ctx.response;
    if (status === 401 && !ctx.hx.redirect) askToSignIn();
    // What is not ours (a proxy's page about a server that is away) must not be swapped into the page.
    const isForeign = !ctx.hx.retarget && (status >= 500 || ctx.sourceElement.matches("#composer, .editor"));
    if (status === 401 || isForeign || (isQuiet(ctx) && status >= 500)) ctx.hx.reswap = "none";
    if (isForeign && status !== 401 && !isQuiet(ctx)) toast("server-failed");
  });
  on("htmx:error", ({detail: {ctx}}) => {
    if (ctx && !isQuiet(ctx)) toast(ctx.sourceElement.matches("#composer, .editor") ? "not-sent" : "no-connection");
  });
  on("htmx:after:swap", ({detail: {ctx}}) => {
    trim();
    // What was said of an earlier try is not true any more once one has come through.
    if (ctx.response?.status < 400 && ctx.request.method === "POST") document.getElementById("toasts").replaceChildren();
    if (ctx.response?.status < 400) ctx.sourceElement?.closest("[data-closes-dialog]")?.closest("dialog")?.close();
  });

  on("click", ({target}) => target.closest("[data-close-dialog]")?.closest("dialog").close());

  // The session ended: sign in here, and find everything as it was.
  on("parley:signed-out", askToSignIn);
  function askToSignIn() {
    if (!document.getElementById("signed-out"))
      document.body.append(document.getElementById("text-signed-out").content.cloneNode(true));
    const dialog = document.getElementById("signed-out");
    if (dialog.open) return;
    dialog.querySelector('[name="next"]').value = location.pathname + location.search;
    fillTimeZone(dialog);
    dialog.showModal();
  }
}
