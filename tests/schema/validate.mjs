// Validates generated texts with ajv: node validate.mjs schemas.json < lines
// A line is {"schema": index, "text": …}.  Exit 1 with the first few failures.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.cwd() + '/');
const Ajv2020 = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;

const ajv = new Ajv2020({ strict: false, allErrors: false, validateFormats: true });
addFormats(ajv);
const checks = JSON.parse(readFileSync(process.argv[2], 'utf8')).map((s) => ajv.compile(s));
let count = 0, failed = 0;
for (const line of readFileSync(0, 'utf8').split('\n')) {
  if (!line) continue;
  const { schema, text } = JSON.parse(line);
  count++;
  let problem = null;
  try {
    if (!checks[schema](JSON.parse(text))) problem = ajv.errorsText(checks[schema].errors);
  } catch (error) {
    problem = error.message;
  }
  if (problem && failed++ < 10) console.error(`schema ${schema}: ${problem}\n  ${text}`);
}
console.log(`${count} texts, ${failed} invalid`);
process.exit(failed || !count ? 1 : 0);
