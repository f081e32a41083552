// Sends the request of a form on this page and shows the answer below it.
"use strict";

function address(form) {
  const query = new URLSearchParams();
  let path = form.dataset.path;
  for (const input of form.querySelectorAll("input")) {
    if (input.dataset.in === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(input.name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function send(event) {
  event.preventDefault();
  const form = event.target;
  const shown = form.querySelector("output");
  const body = form.querySelector("textarea");
  const request = { method: form.dataset.method, headers: {} };
  if (body) Object.assign(request, { body: body.value, headers: { "Content-Type": "application/json" } });
  const key = document.getElementById("key");
  if (key && key.value) request.headers.Authorization = `Bearer ${key.value.trim()}`;
  shown.textContent = "…";
  try {
    const answer = await fetch(address(form), request);
    shown.textContent = `${answer.status} ${answer.statusText}\n${pretty(await answer.text())}`;
  } catch (error) {
    shown.textContent = `no answer: ${error.message}`;
  }
}

for (const form of document.forms) form.addEventListener("submit", send);
