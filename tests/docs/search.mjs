// Queries a built site with its own search: node search.mjs SITE QUERY… prints, for each query, the
// pages that the search box would list. The worker of the theme runs in a context without a page.
import fs from "node:fs";
import vm from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const workers = `${site}/assets/javascripts/workers`;
const [script] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const { config, docs } = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf8"));

let receive, answer;
const worker = { TextDecoder, URL, console, setTimeout, location: { href: "http://localhost/" } };
worker.self = worker.globalThis = worker;
worker.addEventListener = (_, handler) => { receive = handler; };
worker.postMessage = (message) => { answer = message; };
vm.createContext(worker);
vm.runInContext(fs.readFileSync(`${workers}/${script}`, "utf8"), worker);

const [SETUP, QUERY] = [0, 2];
await receive({ data: { type: SETUP, data: { config, docs, options: { suggest: false } } } });
const found = {};
for (const query of queries) {
  await receive({ data: { type: QUERY, data: query } });
  found[query] = answer.data.items.map(([first]) => first.location.split("#")[0]);
}
console.log(JSON.stringify(found));
