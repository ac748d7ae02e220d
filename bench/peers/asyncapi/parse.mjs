// The official AsyncAPI parser as a peer: judges the files that are named, or one JSON object {text} per
// line of stdin; prints one JSON object {verdict, messages} per document.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Parser } from '@asyncapi/parser';

const parser = new Parser();
const ERROR = 0; // the severities count downwards from here

async function judge(text, source) {
  try {
    const { diagnostics } = await parser.parse(text, source ? { source } : {});
    const errors = diagnostics.filter((found) => found.severity === ERROR);
    const messages = errors.map((found) => found.message);
    return { verdict: errors.length ? 'error' : 'valid', messages };
  } catch (failure) {
    return { verdict: 'crash', messages: [String(failure)] };
  }
}

const print = (value) => console.log(JSON.stringify(value));
const files = process.argv.slice(2);
for (const file of files) print(await judge(readFileSync(file, 'utf8'), file));
if (!files.length) {
  for await (const line of createInterface({ input: process.stdin })) print(await judge(JSON.parse(line).text));
}
