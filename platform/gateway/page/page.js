// Shows the API's description: asks for a token, fetches the OpenAPI documents with it and lists kinds and their fields. All that comes
// from the API is put in as text, never as HTML.
"use strict";

const at = (id) => document.getElementById(id);

// node makes an element with a class and children; strings are text.
function node(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

async function ask(path, options) {
  const answer = await fetch(path, { credentials: "omit", cache: "no-store", redirect: "error", ...options });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.detail || body.message || `${answer.status} ${answer.statusText}`);
  return body;
}

const kindOf = (schema) => (schema["x-kubernetes-group-version-kind"] || [])[0];

// resolve follows a reference within its document; what an allOf of one adds (a description, a default) stays.
function resolve(schema, schemas) {
  for (let depth = 0; depth < 10; depth++) {
    if (schema.$ref) schema = { ...schemas[schema.$ref.split("/").pop()], ...schema, $ref: undefined };
    else if (schema.allOf && schema.allOf.length === 1) schema = { ...schema.allOf[0], ...schema, allOf: undefined };
    else break;
  }
  return schema;
}

function typeOf(schema, schemas) {
  if (schema["x-kubernetes-int-or-string"]) return "integer or string";
  if (schema.type === "array") return "list of " + typeOf(resolve(schema.items || {}, schemas), schemas);
  if (schema.type === "object" && schema.additionalProperties) return "map of " + typeOf(resolve(schema.additionalProperties, schemas), schemas);
  return [schema.type || "any", schema.format && `(${schema.format})`].filter(Boolean).join(" ");
}

// rules are what a value must keep, in words.
function rules(schema) {
  const said = [];
  if (schema.enum) said.push("one of " + schema.enum.map((v) => JSON.stringify(v)).join(", "));
  if (schema.default !== undefined) said.push("default " + JSON.stringify(schema.default));
  for (const [field, word] of [["minimum", "at least"], ["maximum", "at most"], ["minLength", "at least characters"], ["maxLength", "at most characters"],
    ["minItems", "at least items"], ["maxItems", "at most items"], ["pattern", "matches"]]) {
    if (schema[field] !== undefined) said.push(`${word} ${schema[field]}`);
  }
  if (schema.nullable) said.push("may be null");
  for (const rule of schema["x-kubernetes-validations"] || []) said.push(rule.message || rule.rule);
  return said;
}

// field shows a field with what is below it, which is made when it is opened.
function field(name, schema, required, schemas, path) {
  schema = resolve(schema, schemas);
  const line = [node("span", "name", name), " ", node("span", "type", typeOf(schema, schemas)), required ? node("span", "required", " required") : null];
  const about = [schema.description ? node("p", "text", schema.description) : null, ...rules(schema).map((r) => node("p", "rule", r))];
  let inner = schema;
  while (inner.type === "array" || inner.additionalProperties) inner = resolve(inner.items || inner.additionalProperties, schemas);
  const below = Object.entries(inner.properties || {});
  if (below.length === 0) return node("div", "leaf", ...line, ...about);
  const details = node("details", "", node("summary", "", ...line), ...about);
  details.addEventListener("toggle", () => {
    if (details.open && path.length < 30) details.append(...fields(inner, schemas, [...path, name]));
  }, { once: true });
  return details;
}

function fields(schema, schemas, path) {
  return Object.entries(schema.properties || {}).map(([name, below]) => field(name, below, (schema.required || []).includes(name), schemas, path));
}

function show(kind) {
  const { gvk, schema, schemas, paths } = kind;
  at("kind").replaceChildren(
    node("h2", "", gvk.kind), node("p", "", node("code", "", `apiVersion: ${gvk.group}/${gvk.version}`)),
    schema.description ? node("p", "text", schema.description) : "",
    node("h3", "", "Fields"), ...fields(schema, schemas, []),
    node("h3", "", "Requests"), node("ul", "", ...paths.map((p) => node("li", "", node("code", "", p)))));
}

// kindsOf are the kinds of a document that have paths.
function kindsOf(document_) {
  const schemas = (document_.components || {}).schemas || {};
  const found = new Map();
  for (const [path, item] of Object.entries(document_.paths || {})) {
    for (const [verb, operation] of Object.entries(item)) {
      const gvk = operation && operation["x-kubernetes-group-version-kind"];
      if (!gvk) continue;
      const key = `${gvk.group}/${gvk.version}/${gvk.kind}`;
      if (!found.has(key)) {
        const schema = Object.values(schemas).find((s) => { const g = kindOf(s); return g && g.group === gvk.group && g.version === gvk.version && g.kind === gvk.kind; });
        if (!schema) continue;
        found.set(key, { gvk, schema, schemas, paths: [] });
      }
      found.get(key).paths.push(`${verb.toUpperCase()} ${path}`);
    }
  }
  return [...found.values()];
}

// own shows what is no kind's: a request each.
function own(document_) {
  const schemas = (document_.components || {}).schemas || {};
  const parameters = (document_.components || {}).parameters || {};
  const bodies = (document_.components || {}).requestBodies || {};
  const requests = [];
  for (const [path, item] of Object.entries(document_.paths || {})) {
    for (const [verb, operation] of Object.entries(item)) {
      const body = resolve(operation.requestBody || {}, bodies).content || {};
      const answer = Object.entries(operation.responses || {}).filter(([code, r]) => code !== "default" && r.content).map(([, r]) => Object.values(r.content)[0].schema)[0];
      requests.push(node("h3", "", node("code", "", `${verb.toUpperCase()} ${path}`)), node("p", "text", operation.description || ""),
        ...(operation.parameters || []).map((p) => resolve(p, parameters)).map((p) => field(`?${p.name}`, { description: p.description, ...p.schema }, p.required, schemas, [])),
        ...Object.entries(body).slice(0, 1).map(([type, b]) => field(type, b.schema, false, schemas, [])),
        ...(answer ? [field("answer", answer, false, schemas, [])] : []));
    }
  }
  at("kind").replaceChildren(node("h2", "", "Coming in, and more"), node("p", "text", document_.info.description), ...requests);
}

async function open(token) {
  const options = { headers: { Authorization: "Bearer " + token, Accept: "application/json" } };
  const index = await ask("/openapi/v3", options);
  const paths = Object.keys(index.paths).filter((p) => p.startsWith("apis/") && p.split("/")[1].includes(".")).sort();
  const documents = await Promise.all(paths.map((p) => ask(index.paths[p].serverRelativeURL, options)));
  const list = node("ul", "");
  const add = (text, showing) => {
    const button = node("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => {
      for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
      button.setAttribute("aria-current", "true");
      showing();
    });
    list.append(node("li", "", button));
  };
  for (const kind of documents.flatMap(kindsOf)) add(`${kind.gvk.kind} (${kind.gvk.group})`, () => show(kind));
  const rest = await ask(index.paths.mni.serverRelativeURL, options);
  add("Coming in, and more", () => own(rest));
  at("kinds").replaceChildren(node("h2", "", "Kinds"), list);
  at("kinds").hidden = false;
  at("login").hidden = at("token").hidden = true;
}

function on(form, token) {
  at(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    at("problem").textContent = "";
    try {
      await open(await token());
    } catch (problem) {
      at("problem").textContent = problem.message;
    } finally {
      at("password").value = at("text").value = "";
    }
  });
}

on("login", async () => {
  const body = JSON.stringify({ name: at("user").value, password: at("password").value });
  return (await ask("/login", { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/problem+json" }, body })).access;
});
on("token", async () => at("text").value.trim());
