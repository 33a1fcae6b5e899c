// JSON-schema mode of the program with its own model: every answer must parse and validate.
//   node live.mjs MOEFLUX schemas.json COUNT [SEED]    (in a directory with ajv and ajv-formats)
// COUNT answers per schema at temperature 1.5, each with another seed (from SEED on) and limit, by
// `generate` and by `run` in turn; and of schemas of objects, calls of a tool that takes them.
import { readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(process.cwd() + '/');
const Ajv2020 = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
const [moeflux, schemasFile, count, first = '1'] = process.argv.slice(2);
const prompts = ['Once upon a time', 'The old king said:', '{', 'Here is the data:\n'];

const ajv = new Ajv2020({ strict: false, validateFormats: true });
addFormats(ajv);
const schemas = JSON.parse(readFileSync(schemasFile, 'utf8'));
let answers = 0, failed = 0;

// Runs the program; what it prints, without `before`, must be JSON that `validate` accepts.
function judge(name, options, before, validate) {
  const run = spawnSync(moeflux, options, { encoding: 'buffer', maxBuffer: 1 << 26 });
  let problem = null, text = '';
  try {
    if (run.status !== 0) throw new Error(`status ${run.status}: ${run.stderr}`);
    text = new TextDecoder('utf-8', { fatal: true }).decode(run.stdout).replace(/\n$/, '');
    if (!text.startsWith(before)) throw new Error(`it does not begin with ${before}`);
    if (!validate(JSON.parse(text.slice(before.length)))) problem = ajv.errorsText(validate.errors);
  } catch (error) {
    problem = error.message;
  }
  answers++;
  if (problem && failed++ < 10) console.error(`${name}: ${problem}\n  ${text}`);
}

schemas.forEach((schema, index) => {
  const validate = ajv.compile(schema);
  const tool = { type: 'function', function: { name: 'f', parameters: schema } };
  writeFileSync('schema.json', JSON.stringify(schema));
  writeFileSync('tools.json', JSON.stringify([tool]));
  for (let i = 0; i < Number(count); i++) {
    const seed = Number(first) + i;
    const common = ['--temp', '1.5', '--seed', `${seed}`, '-n', `${240 + 20 * (i % 10)}`,
      '-p', prompts[i % prompts.length]];
    const how = i % 2 ? ['run', '-q'] : ['generate'];
    judge(`schema ${index}, seed ${seed}`, [...how, '--json-schema', 'schema.json', ...common], '',
      validate);
    if (schema.type === 'object' && i % 4 === 0)
      judge(`tool ${index}, seed ${seed}`, ['run', '-q', '--tools', 'tools.json', '--tool-choice',
        'f', '--one-call', ...common], '→ f ', validate);
  }
});
console.log(`${answers} answers, ${failed} invalid`);
process.exit(failed || !answers ? 1 : 0);
