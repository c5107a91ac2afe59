// Files in the message box: picked, dropped or pasted, uploaded one after the other, and part of the form once they are
// there. The server says what cannot be read; here only what need not be sent to find out is refused.
"use strict";
{
  const on = (name, listen, capture) => document.addEventListener(name, listen, capture);
  const say = (text) => document.getElementById("announcer").replaceChildren(text);
  const clone = (name) => document.getElementById(`text-${name}`).content.cloneNode(true).firstElementChild;
  const words = (name, values) =>
    clone(name).textContent.trim().replace(/{(\w+)}/g, (placeholder, key) => values[key] ?? placeholder);

  const touch = matchMedia("(pointer: coarse)");

  let form = document.getElementById("composer");
  let queue = Promise.resolve();
  let isWaiting = false; // Send was pressed while files were on their way

  const tray = () => form.querySelector("[data-files]");
  const onTheirWay = () => tray().querySelectorAll("[data-uploading]");

  function add(files) {
    for (const file of files) {
      const problem = problemOf(file);
      if (problem) refuse(problem);
      else upload(file);
    }
  }

  function problemOf({name, size}) {
    const {fileBytes, fileLimit, mostFiles} = form.dataset;
    const count = tray().querySelectorAll("[data-file], [data-uploading]").length;
    if (count >= Number(mostFiles)) return words("too-many-files", {name, most: mostFiles});
    if (size > Number(fileBytes)) return words("file-too-large", {name, size: inMegabytes(size), limit: fileLimit});
    return null;
  }

  const inMegabytes = (size) => `${Math.round(size / 1024 / 1024).toLocaleString(document.documentElement.lang)} MB`;

  function upload(file) {
    const chip = clone("uploading");
    const request = new XMLHttpRequest(); // htmx, which uses fetch, cannot tell how much was sent
    chip.querySelector("[data-name]").textContent = file.name;
    for (const named of chip.querySelectorAll("[aria-label]"))
      named.setAttribute("aria-label", named.getAttribute("aria-label").replace("{name}", file.name));
    chip.querySelector("[data-cancel]").addEventListener("click", () => {
      chip.remove();
      request.abort();
      changed();
      form.elements.text.focus();
    });
    tray().append(chip);
    changed();
    queue = queue.then(() => chip.isConnected && transfer(request, file, chip)).then(changed);
  }

  function transfer(request, file, chip) {
    const body = new FormData();
    body.append("model", form.elements.model?.value ?? "");
    body.append("file", file);
    return new Promise((resolve) => {
      request.open("POST", "/files");
      request.responseType = "document"; // parsed where nothing runs, and without a string that is turned into HTML
      request.setRequestHeader("HX-Request", "true");
      request.upload.addEventListener("progress", ({loaded, total}) => {
        chip.querySelector("progress").value = loaded / total;
      });
      request.addEventListener("loadend", () => {
        if (chip.isConnected) finish(request, file, chip);
        resolve();
      });
      request.send(body);
    });
  }

  function finish({status, response}, file, chip) {
    const made = status === 200 && response?.querySelector("[data-file]");
    if (made) {
      chip.replaceWith(document.adoptNode(made));
      say(words("attached", {name: file.name}));
      return;
    }
    chip.remove();
    if (status === 401) document.dispatchEvent(new CustomEvent("parley:signed-out"));
    const sentence = status !== 401 && response?.querySelector(".notice > p")?.textContent.trim();
    refuse(sentence || words("not-uploaded", {name: file.name}));
  }

  function refuse(sentence) {
    stopWaiting(); // what was refused would be missed in what is sent
    const notice = clone("refused");
    notice.querySelector("p").textContent = sentence;
    tray().append(notice);
    say(sentence);
  }

  // `composer.js` has to know that there is something to send, and that it is another question than before.
  function changed() {
    tray().dispatchEvent(new CustomEvent("parley:files", {bubbles: true}));
    if (!isWaiting || onTheirWay().length) return;
    stopWaiting();
    form.requestSubmit();
  }

  // Send waits for what is on its way.
  on("submit", (event) => {
    if (event.target !== form || !onTheirWay().length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (isWaiting) return;
    isWaiting = true;
    const note = clone("waiting");
    tray().append(note);
    say(note.textContent);
  }, true);

  function stopWaiting() {
    isWaiting = false;
    tray().querySelector("[data-waiting]")?.remove();
  }

  // Ways in

  on("click", ({target}) => {
    if (target.closest("[data-attach]")) form.querySelector("input[type=file]").click();
    const remove = target.closest("[data-remove-file]");
    if (remove) {
      // It does not matter whether this arrives: what is not sent is forgotten after a day.
      htmx.ajax("POST", remove.dataset.removeFile, {swap: "none"});
      remove.closest("[data-file]").remove();
      changed();
      form.elements.text.focus();
    }
  });

  on("change", ({target}) => {
    if (target.type !== "file" || target.form !== form) return;
    add(target.files);
    target.value = ""; // the same file may be picked again
    if (!touch.matches) form.elements.text.focus();
  });

  on("paste", (event) => {
    const {files, types} = event.clipboardData;
    // What comes out of a document is text with a picture of it; the text is meant.
    if (!form || !files.length || types.includes("text/plain")) return;
    event.preventDefault();
    add(files);
  });

  const carriesFiles = ({dataTransfer}) => form && dataTransfer?.types.includes("Files");
  const showTarget = (isShown) => { form.querySelector("[data-drop]").hidden = !isShown; };
  on("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    showTarget(true);
  });
  on("dragleave", (event) => carriesFiles(event) && !event.relatedTarget && showTarget(false));
  on("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    showTarget(false);
    add(event.dataTransfer.files);
  });

  // Around a send: what went along is gone from the box, what was added meanwhile stays.

  on("htmx:before:request", ({target}) => {
    if (target !== form) return;
    for (const chip of tray().querySelectorAll("[data-file], .notice")) chip.dataset.sent = "";
  });

  on("htmx:after:swap", () => {
    const current = document.getElementById("composer");
    if (current === form) return;
    const stays = form ? [...tray().children].filter((child) => !("sent" in child.dataset)) : [];
    form = current;
    if (!form || !stays.length) return;
    tray().append(...stays);
    changed();
  });

  on("htmx:finally:request", ({target}) => {
    if (target !== form) return;
    for (const chip of tray().querySelectorAll("[data-sent]")) delete chip.dataset.sent;
  });
}
