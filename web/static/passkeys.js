// Passkeys: before such a form is sent, the browser asks the person's device. Without a script the form is not shown.
"use strict";
{
  const bytes = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  // The server's options are JSON, in which bytes are base64url.
  function read(json) {
    const options = JSON.parse(json);
    options.challenge = bytes(options.challenge);
    if (options.user) options.user.id = bytes(options.user.id);
    for (const known of [...(options.excludeCredentials ?? []), ...(options.allowCredentials ?? [])])
      known.id = bytes(known.id);
    return options;
  }

  function written({id, rawId, type, response}) {
    const parts = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
    const given = parts.filter((part) => response[part]).map((part) => [part, text(response[part])]);
    return JSON.stringify({id, rawId: text(rawId), type, response: Object.fromEntries(given)});
  }

  for (const form of document.querySelectorAll("[data-passkey]")) {
    if (!window.PublicKeyCredential) continue;
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const failed = form.querySelector("[data-passkey-failed]");
      failed.hidden = true;
      try {
        const publicKey = read(form.dataset.options);
        form.elements.reply.value = written(await navigator.credentials[form.dataset.passkey]({publicKey}));
        form.submit();
      } catch (error) {
        if (!(error instanceof DOMException)) throw error; // the person or the device said no
        failed.hidden = false;
      }
    });
  }
}
