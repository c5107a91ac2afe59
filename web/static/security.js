// What htmx may do here: turn our server's HTML into elements. It may not run text as code, insert scripts, or swap
// something because a stray hx-swap-oob attribute asks for it (our replies say <hx-partial>).
"use strict";
{
  const rules = {createHTML: (html) => html}; // no createScript: a script in a reply makes the swap fail
  const refuse = function () {
    throw new Error("Text is never run as code here.");
  };

  htmx.registerExtension("security", {
    init(api) {
      const policy = window.trustedTypes ? trustedTypes.createPolicy("htmx", rules) : rules;
      api.initSecurity(policy, refuse, refuse);
    },
    htmx_before_swap(element, {tasks}) {
      tasks.splice(0, tasks.length, ...tasks.filter((task) => task.type !== "oob"));
    },
  });
}
