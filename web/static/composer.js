// The message box: Enter, drafts, large pastes, how much fits, and what happens to the text around a send.
"use strict";
{
  // Beyond this a text box gets slow: 20,000 lines take a second to paste and a tenth of a second per key.
  const MOST_LINES = 1000;
  const MOST_CHARACTERS = 50000;
  const SAVE_AFTER = 400; // ms without a key
  const CHARACTERS_PER_TOKEN = 3.5; // as backend/conversations/context.py estimates
  const LOUD_FROM = 0.6; // of the window

  const on = (name, listen) => document.addEventListener(name, listen);
  const say = (text) => document.getElementById("announcer").replaceChildren(text);
  const clone = (name) => document.getElementById(`text-${name}`).content.cloneNode(true).firstElementChild;
  const touch = matchMedia("(pointer: coarse)");
  const isLarge = (text) => text.length > MOST_CHARACTERS || text.split("\n", MOST_LINES + 1).length > MOST_LINES;

  let form = null;
  let box = null;
  let pasted = []; // large texts that are sent below what is in the box
  let attempt = null; // the send under way, or the last one
  let counted = null; // the element that tells how long the conversation is
  let writtenAt = 0; // when the text was last touched
  let saving = 0;
  let isLeaving = false; // signing out: nothing is kept
  const resizes = new ResizeObserver(([{target}]) => {
    // Where the line with Stop sticks above the box.
    document.documentElement.style.setProperty("--dock", `${target.offsetHeight}px`);
  });

  function adopt(found) {
    // Within a conversation a fresh box knows only what its last turn added.
    const before = form && form.dataset.conversation === found?.dataset.conversation ? Number(counted.value) : 0;
    form = found;
    box = form?.elements.text ?? null;
    pasted = [];
    if (!form) return;
    const used = document.getElementById("used");
    used.value = Number(used.value) + before;
    renewKey();
    restoreDraft();
    if (isLarge(box.value)) fold();
    grow();
    gauge();
    resizes.disconnect();
    resizes.observe(form.parentElement);
  }

  function renewKey() {
    // A page over plain http has no randomUUID; the server's own key does for it.
    form.elements.key.value = crypto.randomUUID?.() ?? form.elements.key.value;
  }

  // Text

  const hasFiles = () => Boolean(form.querySelector("[data-files] :is([data-file], [data-uploading])"));
  function requireSomething() {
    box.required = !pasted.length && !hasFiles();
    gauge();
  }
  const wholeText = () => [box.value, ...pasted].filter((text) => text.trim()).join("\n\n");

  on("formdata", ({target, formData}) => target === form && formData.set("text", wholeText()));

  on("keydown", (event) => {
    if (event.target !== box || event.key !== "Enter" || event.shiftKey || event.altKey || touch.matches) return;
    event.preventDefault();
    if (wholeText() || hasFiles()) form.requestSubmit();
  });

  on("input", (event) => {
    if (event.target !== box) return;
    const typed = /^(insertText|insertLineBreak|insertComposition|delete|history)/.test(event.inputType);
    if (!typed && isLarge(box.value)) fold();
    if (attempt?.key === form.elements.key.value) renewKey(); // another text is another question
    grow();
    gauge();
    saveSoon();
  });

  // Attached, or no longer (attachments.js).
  on("parley:files", () => {
    if (attempt?.key === form.elements.key.value) renewKey();
    requireSomething();
  });

  // Pasted, dropped, dictated: what is too large for the box is kept beside it before the box ever holds it.
  on("beforeinput", (event) => {
    if (event.target !== box || !isLarge(event.data ?? "")) return;
    event.preventDefault();
    say(addPasted(event.data));
    saveSoon();
  });

  function fold() {
    addPasted(box.value);
    box.value = "";
  }

  function addPasted(text) {
    pasted.push(text);
    const chip = clone("pasted");
    const size = chip.querySelector("[data-lines]");
    const lines = text.split("\n").length;
    const [pattern, count] = lines > 1 ? [size.dataset.lines, lines] : [size.dataset.characters, text.length];
    size.textContent = pattern.replace("{n}", count.toLocaleString(document.documentElement.lang));
    chip.querySelector("[data-remove]").addEventListener("click", () => {
      pasted.splice([...chip.parentElement.children].indexOf(chip), 1);
      chip.remove();
      requireSomething();
      box.focus();
      saveSoon();
    });
    chips().append(chip);
    requireSomething();
    return chip.textContent;
  }

  function chips() {
    const found = form.querySelector("[data-pasted]");
    if (found) return found;
    const made = document.createElement("div");
    made.className = "chips";
    made.dataset.pasted = "";
    box.before(made);
    return made;
  }

  function grow() {
    if (CSS.supports("field-sizing", "content")) return;
    box.style.blockSize = "auto";
    box.style.blockSize = `${box.scrollHeight}px`;
  }

  // How full the model's window is, with what is in the box

  function gauge() {
    const {window: size, room} = form.elements.model?.selectedOptions[0]?.dataset ?? {};
    const label = form.querySelector(".gauge");
    const text = Math.round(wholeText().length / CHARACTERS_PER_TOKEN);
    counted = document.getElementById("used");
    const used = Number(counted.value) + text;
    label.hidden = !size;
    if (size) {
      const meter = label.querySelector("meter");
      Object.assign(meter, {max: Number(size), high: 0.8 * size, value: used});
      label.querySelector("span").textContent = fill(label.dataset.words, {used, window: Number(size)});
      label.classList.toggle("loud", used > LOUD_FROM * size);
    }
    const note = form.querySelector("[data-too-much]");
    note.hidden = !(text > room);
    note.textContent = note.hidden ? "" : fill(note.dataset.tooMuch, {tokens: text - room});
  }

  const fill = (pattern, numbers) =>
    pattern.replace(/{(\w+)}/g, (_, name) => numbers[name].toLocaleString(document.documentElement.lang));

  on("change", ({target}) => target.name === "model" && target.form === form && gauge());

  // Drafts, per conversation; `page.js` empties the store when somebody else signs in

  const draftName = () => `draft:${form.dataset.conversation}`;

  function saveSoon() {
    writtenAt = Date.now();
    clearTimeout(saving);
    saving = setTimeout(saveDraft, SAVE_AFTER);
  }

  function saveDraft() {
    clearTimeout(saving);
    if (!form || isLeaving) return;
    try {
      if (wholeText()) sessionStorage.setItem(draftName(), JSON.stringify({text: box.value, pasted, writtenAt, files: hasFiles()}));
      else sessionStorage.removeItem(draftName());
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error; // more than a browser keeps: it lasts as long as the page
    }
  }

  function restoreDraft() {
    const draft = JSON.parse(sessionStorage.getItem(draftName()));
    if (!draft || box.value) return;
    box.value = draft.text;
    draft.pasted.forEach(addPasted);
    const note = clone("draft");
    writtenAt = draft.writtenAt;
    note.firstChild.textContent = note.firstChild.textContent.replace("{time}", clockTime(writtenAt));
    note.querySelector("[data-lost-files]").hidden = !draft.files;
    note.querySelector("[data-discard]").addEventListener("click", discardDraft);
    form.insertAdjacentElement("afterend", note); // not form.after(): a field has that name
    box.setAttribute("aria-describedby", note.id);
  }

  function discardDraft() {
    clearBox();
    saveDraft();
    box.focus();
  }

  function clearBox() {
    box.value = "";
    pasted = [];
    form.querySelector("[data-pasted]")?.remove();
    document.getElementById("draft")?.remove();
    requireSomething();
    grow();
  }

  function clockTime(moment) {
    const date = new Date(moment);
    const day = date.toDateString() === new Date().toDateString() ? {} : {day: "numeric", month: "long"};
    const clock = {hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: document.body.dataset.zone};
    return date.toLocaleString(document.documentElement.lang, {...day, ...clock});
  }

  addEventListener("pagehide", saveDraft);
  on("visibilitychange", () => document.hidden && saveDraft());
  on("submit", ({target}) => { isLeaving ||= target.matches("[data-sign-out]"); });

  // Around a send. The text stays in the box until the server has it; what was typed meanwhile stays in any case.

  on("htmx:before:request", ({target, detail: {ctx}}) => {
    if (target !== form) return;
    const key = form.elements.key.value;
    attempt = {ctx, key, draft: draftName(), text: box.value, pasted: pasted.length, parts: [...pasted]};
  });

  on("htmx:before:swap", ({detail: {ctx}}) => {
    if (ctx !== attempt?.ctx || ctx.response.status >= 400) return;
    attempt.typedMeanwhile = box.value.startsWith(attempt.text) ? box.value.slice(attempt.text.length) : box.value;
    attempt.pastedMeanwhile = pasted.slice(attempt.pasted);
    sessionStorage.removeItem(attempt.draft);
    document.getElementById("draft")?.remove();
  });

  on("htmx:after:swap", ({detail: {ctx}}) => {
    const current = document.getElementById("composer");
    if (current !== form) adopt(current);
    else if (form && counted !== document.getElementById("used")) gauge(); // an answer has ended
    if (form && ctx === attempt?.ctx && ctx.response.status < 400) settle();
    if (form) giveBack();
  });

  function settle() {
    if (attempt.typedMeanwhile) box.value = attempt.typedMeanwhile.trimStart();
    attempt.pastedMeanwhile?.forEach(addPasted);
    attempt.question = [...document.querySelectorAll(".message.you")].at(-1)?.id;
    saveDraft();
    grow();
    gauge();
    if (!touch.matches) box.focus({preventScroll: true});
    scrollTo({top: document.documentElement.scrollHeight, behavior: "instant"});
  }

  // What no model could read comes back into the box, to be shortened, unless something else is there by now.
  function giveBack() {
    const question = attempt?.question && document.getElementById(attempt.question);
    const isTooLong = question?.nextElementSibling?.querySelector("[data-too-long]");
    if (!isTooLong || question.querySelector(".chip") || wholeText() || hasFiles()) return; // files cannot come back
    box.value = attempt.text;
    attempt.parts.forEach(addPasted);
    attempt = null;
    renewKey();
    grow();
    gauge();
    saveSoon();
    say(`${document.getElementById("announcer").textContent.trim()} ${clone("given-back").textContent}`);
  }

  adopt(document.getElementById("composer"));
}
