// JSON-schema mode of the program with its own model: every answer must parse and validate.
//   node live.mjs MOEFLUX schemas.json COUNT      (in a directory with ajv and ajv-formats)
// COUNT answers per schema at temperature 1.5, each with another seed and limit.
import { readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(process.cwd() + '/');
const Ajv2020 = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
const [moeflux, schemasFile, count] = process.argv.slice(2);
const prompts = ['Once upon a time', 'The old king said:', '', 'Here is the data:\n'];

const ajv = new Ajv2020({ strict: false, validateFormats: true });
addFormats(ajv);
const schemas = JSON.parse(readFileSync(schemasFile, 'utf8'));
let answers = 0, failed = 0;
schemas.forEach((schema, index) => {
  const validate = ajv.compile(schema);
  writeFileSync('schema.json', JSON.stringify(schema));
  for (let seed = 1; seed <= Number(count); seed++) {
    const options = ['generate', '--json-schema', 'schema.json', '--temp', '1.5', '--seed', `${seed}`,
      '-p', prompts[seed % prompts.length] || '{', '-n', `${240 + 20 * (seed % 10)}`];
    const run = spawnSync(moeflux, options, { encoding: 'buffer', maxBuffer: 1 << 26 });
    let problem = null, text = '';
    try {
      if (run.status !== 0) throw new Error(`status ${run.status}: ${run.stderr}`);
      text = new TextDecoder('utf-8', { fatal: true }).decode(run.stdout).replace(/\n$/, '');
      if (!validate(JSON.parse(text))) problem = ajv.errorsText(validate.errors);
    } catch (error) {
      problem = error.message;
    }
    answers++;
    if (problem && failed++ < 10) console.error(`schema ${index}, seed ${seed}: ${problem}\n  ${text}`);
  }
});
console.log(`${answers} answers, ${failed} invalid`);
process.exit(failed || !answers ? 1 : 0);
