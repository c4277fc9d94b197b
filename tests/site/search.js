// Usage: node search.js WORKER INDEX QUERY...; prints {query: [locations, the best first]}.
// Runs the search script of the theme with the messages that the theme sends and receives.
const fs = require("fs");
const vm = require("vm");

const [worker, index, ...queries] = process.argv.slice(2);
const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3];
const { config, docs } = JSON.parse(fs.readFileSync(index, "utf8"));
const found = {};
const waiting = [...queries];
let listener;

const send = (type, data) => listener({ data: { type, data } });
const next = () => {
  if (waiting.length) send(QUERY, waiting[0]);
  else console.log(JSON.stringify(found));
};
const scope = {
  addEventListener: (_, callback) => { listener = callback; },
  postMessage: ({ type, data }) => {
    if (type === READY) next();
    if (type === RESULT) {
      found[waiting.shift()] = data.items.map((pages) => pages[0].location);
      next();
    }
  },
  console,
};
scope.self = scope;
scope.window = scope;
vm.runInNewContext(fs.readFileSync(worker, "utf8"), scope);
send(SETUP, { config, docs, options: { suggest: true } });
